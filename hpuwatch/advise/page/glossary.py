"""The words that a newcomer needs, each explained where the page first uses it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpuwatch.advise.page.markup import Markup, element, joined
from hpuwatch.advise.page.quantities import ARITHMETIC
from hpuwatch.gaudi.estimate import ORIGINS
from hpuwatch.gaudi.terms import FIGURES


@dataclass(frozen=True, slots=True)
class Word:
    """A term: the forms in which texts use it (a pattern), and what it means."""

    name: str
    forms: str
    meaning: str

    @property
    def anchor(self) -> str:
        """Return where the glossary has it."""
        return "word-" + re.sub(r"[^a-z]+", "-", self.name.lower()).strip("-")


WORDS = (
    Word(
        "KV block",
        r"KV blocks?",
        "the unit in which the KV cache is handed out, usually 128 tokens of one request.",
    ),
    Word(
        "KV cache",
        r"KV caches?",
        "card memory that holds the tokens of all running requests. The larger it is, the "
        "more requests run at once; when it is full, requests wait or are thrown out and "
        "begin anew.",
    ),
    Word(
        "graph reserve",
        r"graph reserve|reserve",
        "memory that vLLM keeps free for graphs: VLLM_GRAPH_RESERVED_MEM, a share of the "
        "usable memory. What it takes is lost to the KV cache.",
    ),
    Word(
        "graph",
        r"graphs?",
        "the program for one bucket, compiled for the card. It is kept in card memory.",
    ),
    Word(
        "bucket",
        r"buckets?",
        "a size of work (how many requests, how many tokens) for which the server prepares "
        "a graph. A request runs in the next larger bucket; the rest of it is padding.",
    ),
    Word(
        "warm-up",
        r"warm-?up",
        "the time before a server is ready, in which it prepares the graphs of all buckets. "
        "What is not prepared is compiled later, while a user waits.",
    ),
    Word(
        "prompt",
        r"prompts?|prefills?",
        "the phase in which the text of a request is read, many tokens at once (prefill).",
    ),
    Word(
        "decode",
        r"decodes?",
        "the phase in which the answer is made, one token of each request at a time.",
    ),
    Word(
        "profile run",
        r"profile run",
        "a test with the largest prompt, right after the weights are loaded, that shows "
        "what memory is left.",
    ),
    Word("weights", r"weights", "the numbers of the model itself, in card memory."),
    Word(
        "batch",
        r"batch(?:es)?",
        "how many requests are computed together in one step.",
    ),
    Word(
        "query",
        r"query|queries",
        "the new tokens of a request that one step computes.",
    ),
    Word(
        "context",
        r"contexts?",
        "the tokens of a request that are in the KV cache already, counted in KV blocks.",
    ),
    Word(
        "dummy block",
        r"dummy block",
        "a KV block for places that no request fills.",
    ),
    Word(
        "activations",
        r"activations?",
        "memory that a running step needs for its intermediate results.",
    ),
    Word(
        "utilisation",
        r"utili[sz]ation",
        "--gpu-memory-utilization: the share of the free memory that vLLM may plan with.",
    ),
    Word(
        "preemption",
        r"preemptions?|preempted",
        "a running request loses its KV blocks to another one and is computed again later.",
    ),
    Word(
        "token",
        r"tokens?",
        "a piece of text, about three quarters of an English word.",
    ),
    Word(
        "padding",
        r"padding",
        "the part of a bucket that no request fills: computed, and thrown away.",
    ),
    Word(
        "rank",
        r"ranks?",
        "one of the cards (and its process) that share a model.",
    ),
    Word(
        "recipe cache",
        r"recipe caches?",
        "a folder that keeps compiled graphs, so that the next start needn't compile them.",
    ),
    Word(
        "vLLM's budget",
        r"vLLM's budget",
        "the free memory times --gpu-memory-utilization: graph reserve and KV cache. What "
        "is outside of it stays free for whatever else runs.",
    ),
    Word(
        "allowance",
        r"allowances?",
        "memory that hpuwatch keeps free for a need that nobody has measured.",
    ),
    Word(
        "bucketing strategy",
        r"bucketing strategy|(?:exponential|linear|padding-aware)(?: strategy)?",
        "how the sizes of buckets are spaced (VLLM_BUCKETING_STRATEGY): exponential ones "
        "grow by factors and follow --max-num-seqs and --max-model-len; linear ones go in "
        "equal steps between bounds that variables set.",
    ),
    Word(
        "range",
        r"ranges?",
        "the sizes from the smallest to the largest bucket along one axis.",
    ),
    Word(
        "law",
        r"laws?",
        "a formula with factors that were fitted to figures of starts.",
    ),
    Word(
        "fork",
        r"fork",
        "Habana's own copy of vLLM, of 2023 to 2025 (releases fork-1.18 to fork-1.22).",
    ),
    Word(
        "plugin",
        r"plugin|vllm-gaudi",
        "vllm-gaudi, what makes vLLM of today run on Gaudi (releases plugin-0.10 on).",
    ),
)
"""Explained where they come first."""

_KNOWN = tuple(
    Word(name, name, f"of a figure: {FIGURES[name][0].lower()}{FIGURES[name][1:]}")
    for name in (*ORIGINS, ARITHMETIC)
)
"""How figures are known: ordinary words, so only the glossary explains them."""


def word_of(text: str) -> Word | None:
    """Return the word that a text is a form of, in any case."""
    for word in WORDS:
        if text.lower() == word.name.lower() or re.fullmatch(
            word.forms, text, re.IGNORECASE
        ):
            return word
    return None


_PARTS = "|".join(
    f"(?P<w{number}>(?<![\\w-]){word.forms}(?![\\w-]))"
    for number, word in enumerate(WORDS)
)
_CODE = r"(?P<code>\bvllm:\w+|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b(?:=[^\s,;)]*[^\s,;).])?|(?<![\w-])--[a-z][\w-]+)"
_TOKEN = re.compile(rf"{_CODE}|(?i:{_PARTS})")


@dataclass(slots=True)
class Prose:
    """Turns sentences into markup, and explains each word where it comes first.

    One report, one prose: it remembers which words the reader has met.
    """

    met: list[Word] = field(default_factory=list)

    def sentence(self, text: str) -> tuple[Markup, list[Word]]:
        """Return a text with its settings as code, and the words that are new in it."""
        parts: list[str] = []
        new: list[Word] = []
        at = 0
        for found in _TOKEN.finditer(text):
            parts.append(text[at : found.start()])
            parts.append(self._marked(found, new))
            at = found.end()
        parts.append(text[at:])
        return joined(parts), new

    def paragraph(self, text: str, class_: str | None = None) -> Markup:
        """Return a paragraph, and below it what its new words mean."""
        said, new = self.sentence(text)
        return joined([element("p", said, class_=class_), explained(new)])

    def items(self, texts: list[str]) -> Markup:
        """Return a list of sentences, and below it what its new words mean."""
        new: list[Word] = []
        rows = []
        for text in texts:
            said, words = self.sentence(text)
            rows.append(element("li", said))
            new += words
        return joined([element("ul", *rows), explained(new)])

    def _marked(self, found: re.Match[str], new: list[Word]) -> Markup:
        if found["code"]:
            is_flag = found[0].startswith("--")
            return element("code", found[0], class_="flag" if is_flag else None)
        number = int(str(found.lastgroup)[1:])
        word = WORDS[number]
        if word in self.met:
            return joined([found[0]])
        self.met.append(word)
        new.append(word)
        return element("dfn", found[0])


def explained(words: list[Word]) -> Markup:
    """Return what words mean, as a note below their first use."""
    if not words:
        return Markup()
    return element(
        "dl",
        *(
            element("div", element("dt", word.name), element("dd", word.meaning))
            for word in words
        ),
        class_="words",
        aria_label="Words used here",
    )


def glossary() -> Markup:
    """Return all words, by the alphabet."""
    ordered = sorted((*WORDS, *_KNOWN), key=lambda word: word.name.lower())
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", word.name, id=word.anchor),
                element("dd", word.meaning),
            )
            for word in ordered
        ),
        class_="glossary",
    )
