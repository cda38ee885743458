"""The lines that a server logs of each request, its prompt included.

V0 logs them unless ``--disable-log-requests`` is given.  ``--max-log-len`` cuts the prompt,
in characters and in tokens.
"""

from __future__ import annotations

from hpuwatch.sim.serve.question import Prompt, Question
from hpuwatch.sim.serve.tokens import token_id
from hpuwatch.sim.world import World


class RequestLog:
    """Logs what is asked, where the server is told to and the release has lines for it."""

    def __init__(self, world: World) -> None:
        """Take the server."""
        self._world = world
        self._is_on = world.options.log_requests and world.voice.has("request_received")
        self._longest = world.options.max_log_len

    def tell(self, identity: str, question: Question) -> None:
        """Log the prompts of one question, each as a request of its own."""
        if not self._is_on:
            return
        say, speakers = self._world.voice.say, self._world.speakers
        for number, prompt in enumerate(question.prompts):
            name = f"{identity}-{number}"
            say(
                speakers.front,
                "request_received",
                request=name,
                prompt=repr(prompt.text[: self._longest] or None),
                params=_sampling(question),
                tokens=self._token_ids(prompt),
            )
            say(speakers.engine, "request_added", request=name)

    def _token_ids(self, prompt: Prompt) -> list[int]:
        vocabulary = self._world.options.model.vocabulary
        return [
            token_id(piece, vocabulary) for piece in prompt.content[: self._longest]
        ]


def _sampling(question: Question) -> str:
    fields = {
        "n": question.n,
        "stop": list(question.stop),
        "include_stop_str_in_output": question.include_stop,
        "ignore_eos": question.ignore_eos,
        "max_tokens": question.max_tokens,
        "min_tokens": question.min_tokens,
        "logprobs": question.logprobs,
    }
    told = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"SamplingParams({told})"
