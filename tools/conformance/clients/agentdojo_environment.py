"""AgentDojo's environments behind a pipe: one JSON object a line in, one out. Runs in a virtual environment of its own.

`suites` tells the tools and tasks; `begin` sets up one task, with an injection where the task will read it, and tells
the calls that AgentDojo's authors wrote down for both; `call` runs one tool; `end` asks AgentDojo's own checks.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import yaml
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites
from agentdojo.types import text_content_block_from_string

VERSION = "v1.2.2"
MARK = "OBEY-THIS:"
"""Begins each injection, so that the scripted model finds it however a tool's output is wrapped."""


class Desk:
    def __init__(self) -> None:
        self._suites = get_suites(VERSION)
        self._suite: Any = None
        self._user: Any = None
        self._injection: Any = None
        self._env: Any = None
        self._before: Any = None
        self._made: list[FunctionCall] = []
        self._read: dict[tuple[str, str], list[str]] = {}
        # The same YAML, read by libyaml: each task loads its environment anew.
        yaml.safe_load = lambda text: yaml.load(text, Loader=yaml.CSafeLoader)

    def suites(self) -> dict[str, Any]:
        return {
            name: {
                "tools": [
                    {"name": one.name, "description": one.description, "parameters": one.parameters.model_json_schema()}
                    for one in suite.tools
                ],
                "user_tasks": sorted(suite.user_tasks, key=_number),
                "injection_tasks": sorted(suite.injection_tasks, key=_number),
            }
            for name, suite in self._suites.items()
        }

    def begin(self, suite: str, user: str, injection: str | None) -> dict[str, Any]:
        self._suite = self._suites[suite]
        self._user = self._suite.user_tasks[user]
        self._injection = None if injection is None else self._suite.injection_tasks[injection]
        injected = {}
        if self._injection is not None:
            injected = dict.fromkeys(self._vectors(), f"{MARK} {self._injection.GOAL}")
        self._env = self._user.init_environment(self._suite.load_and_inject_default_environment(injected))
        self._before, self._made = self._env.model_copy(deep=True), []
        attack = [] if self._injection is None else self._injection.ground_truth(self._before.model_copy(deep=True))
        return {
            "prompt": self._user.PROMPT, "answer": self._user.GROUND_TRUTH_OUTPUT,
            "calls": _calls(self._user.ground_truth(self._before.model_copy(deep=True))), "attack": _calls(attack),
            "places": len(injected),
        }  # fmt: skip

    def _vectors(self) -> list[str]:
        """The places of the environment that the task's own calls read."""
        if (self._suite.name, self._user.ID) in self._read:
            return self._read[self._suite.name, self._user.ID]
        canaries = {vector: f"CANARY_{at}_" for at, vector in enumerate(self._suite.get_injection_vector_defaults())}
        env = self._user.init_environment(self._suite.load_and_inject_default_environment(canaries))
        *_, messages, _ = GroundTruthPipeline(self._user).query("", FunctionsRuntime(self._suite.tools), env)
        seen = str([message["content"] for message in messages])
        found = self._read[self._suite.name, self._user.ID] = [
            one for one, canary in canaries.items() if canary in seen
        ]
        return found

    def call(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        self._made.append(FunctionCall(function=name, args=args))
        found, error = FunctionsRuntime(self._suite.tools).run_function(self._env, name, args)
        return {"text": error or tool_result_to_str(found), "error": error}

    def end(self, answer: str) -> dict[str, Any]:
        said = [text_content_block_from_string(answer)]

        def check(task: Any) -> bool:
            return bool(self._suite._check_task_result(task, said, self._before, self._env, self._made))

        return {"utility": check(self._user), "security": None if self._injection is None else check(self._injection)}


def _calls(made: list[FunctionCall]) -> list[dict[str, Any]]:
    return [{"name": one.function, "args": json.loads(json.dumps(dict(one.args), default=str))} for one in made]


def _number(task: str) -> int:
    return int(task.rpartition("_")[2])


def main() -> None:
    desk, answers = Desk(), sys.stdout
    sys.stdout = sys.stderr  # whatever the package prints stays out of the answers
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(desk, asked.pop("op"))(**asked)
        except Exception as error:  # noqa: BLE001 - a task that AgentDojo cannot run is a line of the report
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
