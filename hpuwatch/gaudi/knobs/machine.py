"""The knobs of logs, profiles, cards and host, as a table."""

from __future__ import annotations

from hpuwatch.gaudi import checks
from hpuwatch.gaudi.knob import COUNT, WHOLE, YES, Knob

_STEP_LOG = "fork-1.16..1.23 vllm"
_WORDS = {
    "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION": "A warning at each step that compiles a graph.",
    "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION_ALL": "A line at every step, with its compilations.",
    "VLLM_HPU_LOG_STEP_CPU_FALLBACKS": "A warning at each step that runs on the CPU in part.",
    "VLLM_HPU_LOG_STEP_CPU_FALLBACKS_ALL": "A line at every step, with its CPU parts.",
}
_PROFILES = {
    "VLLM_PT_PROFILE": ("of one step", "all"),
    "VLLM_PROFILE_PROMPT": ("of a prompt", "all"),
    "VLLM_PROFILE_DECODE": ("of a decode", "all"),
    "VLLM_PROFILE_STEPS": ("of some steps", "all"),
    "VLLM_PROFILE_UNIFIED": ("of unified attention", "plugin-0.14..0.17"),
}

LOGS = (
    Knob(
        "VLLM_DEVELOPER_MODE",
        "logs",
        "Prints a line for each bucket of warm-up.",
        "plugin-0.11..",
        "false",
        YES,
        checks.truth,
    ),
    Knob(
        "VLLM_ENABLE_EXPERIMENTAL_FLAGS",
        "logs",
        "The developer mode, under its older name.",
        "fork-1.22..1.23 plugin-0.10",
        "false",
        YES,
        checks.truth,
        successor="VLLM_DEVELOPER_MODE",
    ),
    Knob(
        "PT_HPU_METRICS_GC_DETAILS",
        "logs",
        "A line for each graph that compiles while serving.",
        "fork-1.21.. plugin-0.10..",
        "false",
        YES,
        checks.truth,
        "In the V1 engine each step then waits for the card.",
    ),
    Knob(
        "PT_HPU_METRICS_FILE",
        "logs",
        "A file of the bridge's counters: compilations, CPU parts, defragmentation.",
        "all",
        "not set",
        "a path",
    ),
    Knob(
        "PT_HPU_METRICS_DUMP_TRIGGERS",
        "logs",
        "When that file is written.",
        "all",
        "not set",
        "process_exit, mark_step, metric_change, with commas between",
    ),
    Knob(
        "PT_HPU_METRICS_FILE_FORMAT",
        "logs",
        "The form of that file.",
        "all",
        "not set",
        "json or text",
        checks.one_of("json", "text", otherwise=checks.Outcome.WORKS),
    ),
    *(
        Knob(
            name,
            "logs",
            does,
            _STEP_LOG,
            "0",
            "0, or anything else for yes",
            checks.not_zero,
            "Even false turns it on. The V1 engine, and so the plugin, never looks at it: "
            "PT_HPU_METRICS_GC_DETAILS is what tells there.",
        )
        for name, does in _WORDS.items()
    ),
    Knob(
        "VLLM_PROFILER_ENABLED",
        "logs",
        "Writes a time line of the host's work.",
        "all",
        "false",
        "true",
        checks.truth,
    ),
    *(
        Knob(
            name,
            "logs",
            f"A profile {what}, at the start.",
            honoured,
            "not set",
            "such as prompt_1_1024_t"
            if name == "VLLM_PT_PROFILE"
            else "see vllm-gaudi",
            beware="The server ends on purpose when the profile is written.",
        )
        for name, (what, honoured) in _PROFILES.items()
    ),
    Knob(
        "VLLM_DEBUG",
        "logs",
        "Lines for debugging, by area.",
        "plugin-0.11..",
        "not set",
        "steps, defrag, fwd, with commas between",
        checks.areas,
    ),
    Knob(
        "VLLM_LOGGING_LEVEL",
        "logs",
        "What vLLM prints at least.",
        "all",
        "INFO",
        "DEBUG, INFO, WARNING or ERROR",
        beware="hpuwatch reads lines of INFO: without them it knows next to nothing.",
    ),
    *(
        Knob(f"VLLM_LOGGING_{part}", "logs", decides, "all", default, legal)
        for part, decides, default, legal in (
            ("PREFIX", "What each of vLLM's lines begins with.", "not set", "a text"),
            ("STREAM", "Where vLLM prints.", "stdout", "a stream's name"),
            ("COLOR", "Whether lines are coloured.", "auto", "auto, 0 or 1"),
            ("CONFIG_PATH", "A file that configures logging.", "not set", "a path"),
        )
    ),
    Knob(
        "VLLM_CONFIGURE_LOGGING",
        "logs",
        "Whether vLLM sets logging up itself.",
        "all",
        "1",
        "0 or 1",
        checks.switch,
        beware="With 0 hpuwatch sees few lines, or none.",
    ),
    Knob("NO_COLOR", "logs", "No colours if set at all.", "all", "not set", "anything"),
    Knob(
        "VLLM_LOG_STATS_INTERVAL",
        "logs",
        "Seconds between two of the engine's lines on load and cache.",
        "all",
        "10",
        "seconds",
    ),
    Knob(
        "HABANA_LOGS",
        "logs",
        "Where the card's software writes its own logs.",
        "all",
        "~/.habana_logs",
        "a directory",
    ),
    Knob(
        "LOG_LEVEL_ALL",
        "logs",
        "How little those logs say, 0 to 6.",
        "all",
        "5 or 6",
        "0 to 6",
        checks.one_of(*"0123456", otherwise=checks.Outcome.WORKS),
    ),
    Knob(
        "ENABLE_CONSOLE",
        "logs",
        "Whether those logs go to the server's output too.",
        "all",
        "false",
        "true or false",
        checks.anything,
    ),
)

OTHER = (
    Knob(
        "VLLM_USE_V1",
        "other",
        "Chooses the engine: V1 (1) or V0 (0).",
        "fork-1.21..1.22 vllm plugin-0.10",
        (("fork", "0"), ("plugin", "1"), ("vllm", "0")),
        "0 or 1",
        checks.one_of("0", "1"),
        "fork-1.23 does not start with 1.",
    ),
    Knob(
        "VLLM_USE_FAKE_HPU",
        "other",
        "Runs on the CPU as if it were a card: 4 GiB of cache, memory figures of 0.",
        "all",
        "0",
        "0 or 1",
        checks.one_of("0", "1", otherwise=checks.Outcome.WORKS),
    ),
    Knob(
        "HABANA_VISIBLE_DEVICES",
        "other",
        "The cards that a container sees, by number.",
        "all",
        "all",
        "all, or numbers with commas between",
    ),
    Knob(
        "HABANA_VISIBLE_MODULES",
        "other",
        "The cards that a process uses, by module; modules are numbered otherwise than "
        "devices.",
        "all",
        "all",
        "numbers with commas between",
    ),
    Knob(
        "OMP_NUM_THREADS",
        "other",
        "Threads of the host for each worker, which warm-up needs too.",
        "all",
        "the cores, divided by the workers",
        COUNT,
        checks.whole(1),
        "plugin-0.16 and later set it where it isn't set.",
    ),
    Knob(
        "VLLM_GC_THR_MULTIPLIER",
        "other",
        "How rarely Python's garbage collector runs.",
        "fork-1.18..1.23",
        (("fork-1.21..", "16"), ("fork", "2")),
        COUNT,
        checks.whole(1),
    ),
    *(
        Knob(
            f"VLLM_GC_THR_GEN{generation}",
            "other",
            f"Threshold of generation {generation} of Python's garbage collector.",
            "fork-1.18..1.23",
            "Python's, times VLLM_GC_THR_MULTIPLIER",
            WHOLE,
            checks.whole(0),
        )
        for generation in range(3)
    ),
)
