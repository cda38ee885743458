"""The knobs of warm-up and of the next start, as a table."""

from __future__ import annotations

from hpuwatch.gaudi import checks
from hpuwatch.gaudi.knob import ONE_YES, Knob

_SECONDS = "a whole number of seconds"

WARMUP = (
    Knob(
        "VLLM_SKIP_WARMUP",
        "warm-up",
        "No warm-up: a fast start, and a compilation at each first use of a shape.",
        "fork-1.17..1.23 vllm-0.6..0.9 plugin-0.10..",
        "false",
        ONE_YES,
        checks.truth,
        "The V1 preview of fork-1.21 never warms up.",
    ),
    Knob(
        "VLLM_FULL_WARMUP",
        "warm-up",
        "Skips the guards of compiled code after warm-up.",
        "fork-1.21.2..1.23 plugin-0.10..",
        "false",
        "1 or true",
        checks.one_or_true,
        "A shape that was not warmed up then ends the server.",
    ),
    Knob(
        "PT_COMPILE_ONLY_MODE",
        "warm-up",
        "Warm-up compiles graphs without running them; the runner sets it.",
        "fork-1.18.. plugin",
        "on",
        "nothing: leave it alone",
        internal=True,
    ),
    Knob(
        "VLLM_MM_WARMUP_OUTSIDE_COMPILE_ONLY",
        "warm-up",
        "Whether the graphs of pictures really run in warm-up, which takes longer.",
        "plugin-head",
        "false",
        "1 or true",
        checks.one_or_true,
    ),
    Knob(
        "QUANT_CONFIG",
        "warm-up",
        "The configuration of INC for FP8.",
        "all",
        "not set",
        "a path",
    ),
    Knob(
        "VLLM_DISABLE_MARK_SCALES_AS_CONST",
        "warm-up",
        "Whether FP8 scales stay variables; constant ones lengthen warm-up.",
        "all",
        "not set",
        "true or false",
        checks.truth,
    ),
    Knob(
        "VLLM_DYNAMIC_KV_QUANT",
        "warm-up",
        "Scales of an FP8 KV cache that are computed while serving.",
        "all",
        "not set",
        "true or false",
        checks.truth,
    ),
    Knob(
        "HPU_ALIGNED_SCALE",
        "warm-up",
        "FP8 scales that the card applies without cost.",
        "all",
        "not set",
        "true or false",
        checks.truth,
    ),
)

RESTART = (
    Knob(
        "PT_HPU_RECIPE_CACHE_CONFIG",
        "restart",
        "Cache of compiled recipes on disk, which shortens the next warm-up.",
        "all",
        "not set",
        "DIRECTORY,true|false,MEGABYTES",
        checks.recipe_cache,
        "Needs a local disk with file locks. Another card, release, data type or number "
        "of cards makes it useless, and true empties it at every start.",
    ),
    Knob(
        "PT_RECIPE_CACHE_PATH",
        "restart",
        "The directory of compiled recipes, under an older name that the bridge's banner "
        "still shows.",
        "all",
        "not set",
        "a directory",
        successor="PT_HPU_RECIPE_CACHE_CONFIG",
    ),
    Knob(
        "PT_CACHE_FOLDER_DELETE",
        "restart",
        "Whether the recipe cache is emptied at the start, under an older name that the "
        "bridge's banner still shows.",
        "all",
        "not set",
        "true or false",
        successor="PT_HPU_RECIPE_CACHE_CONFIG",
    ),
    Knob(
        "VLLM_ENGINE_READY_TIMEOUT_S",
        "restart",
        "How long each of several API servers waits for the engine, warm-up included.",
        "plugin-0.14..",
        "600",
        _SECONDS,
        checks.whole(1),
        "With several API servers (--api-server-count, --data-parallel-size) a longer warm-up "
        "is killed by it. A single one first waits for the engine's own start, without a "
        "limit: measured on vLLM 0.24 (vllm-project/vllm issue 48031), and public warm-ups "
        "of 634 to 3,000 s came through. Before plugin-0.14 the limit is 600 s, whatever is "
        "set.",
    ),
    Knob(
        "VLLM_ENGINE_ITERATION_TIMEOUT_S",
        "restart",
        "How long a step of the V0 engine may take before it counts as dead.",
        "fork vllm",
        "60",
        _SECONDS,
        checks.whole(1),
        "A long compilation is a long step.",
    ),
    Knob(
        "VLLM_RPC_TIMEOUT",
        "restart",
        "How long the V0 front end waits for an answer, in milliseconds.",
        "fork vllm",
        "10000",
        "a whole number of milliseconds",
        checks.whole(1),
    ),
    Knob(
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        "restart",
        "How long a step of several cards may take before it counts as dead.",
        "plugin",
        "300",
        _SECONDS,
        checks.whole(1),
        "A long compilation is a long step.",
    ),
    Knob(
        "VLLM_WORKER_MULTIPROC_METHOD",
        "restart",
        "How worker processes are started.",
        "fork-1.21.. plugin",
        "spawn",
        "spawn",
        checks.start_method,
    ),
    Knob(
        "VLLM_DISABLE_COMPILE_CACHE",
        "restart",
        "Whether vLLM does without its own cache of compiled code.",
        "all",
        "0",
        "0 or 1",
        beware="That cache is for other cards: on Gaudi it makes no difference.",
    ),
    Knob(
        "VLLM_CACHE_ROOT",
        "restart",
        "Where vLLM keeps its own caches.",
        "all",
        "~/.cache/vllm",
        "a directory",
        beware="Recipes of Gaudi are not among them.",
    ),
)
