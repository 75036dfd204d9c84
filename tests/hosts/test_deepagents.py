"""Deep Agents: every worker is covered by one call, and what is not is listed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from deepagents import (
    GeneralPurposeSubagentProfile,
    HarnessProfile,
    create_deep_agent,
    register_harness_profile,
)
from deepagents.backends import FilesystemBackend
from deepagents.middleware.filesystem import FilesystemMiddleware
from deepagents.middleware.skills import SkillsMiddleware
from deepagents.profiles.harness import harness_profiles
from langchain.agents import create_agent
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.hosts.langchain_support import (
    GO,
    PICK,
    READ,
    Asks,
    Scripted,
    make_tool,
    results,
    scripted,
    thread,
)
from tests.hosts.matrix import Call, ToolSpec
from toolscope import Agent, PolicyEngine, Scope
from toolscope.hosts import ORIGIN_KEY
from toolscope.hosts.deepagents import Toolscope, attach, coverage

CREATE: Any = create_deep_agent  # the arguments are made below, in more shapes than its types allow


def task(worker: str) -> list[Call]:
    return [Call(tool="task", arguments={"description": "do it", "subagent_type": worker})]


def shared(*turns: Sequence[Call]) -> Scripted:
    """One model for the boss and its general-purpose worker: the boss's turn comes first."""
    return scripted(turns)


def seen(model: Scripted) -> list[bool]:
    """For each list that the model was given, whether the person's tool was in it."""
    return ["pick_file" in names for names in model.listed]


def tools(executed: list[str]) -> list[BaseTool]:
    return [make_tool(PICK, executed), make_tool(READ, executed)]


def test_the_general_purpose_worker_of_a_plain_agent_is_open() -> None:
    """The trap itself: a middleware on the main agent alone leaves the worker open."""
    executed: list[str] = []
    model = shared(task("general-purpose"), [Call(tool="pick_file")])
    agent = CREATE(model, tools(executed), middleware=[Toolscope(PolicyEngine())])
    agent.invoke(GO)
    assert executed == ["pick_file"]
    (line,) = coverage(agent)
    assert "tool 'task' ('general-purpose')" in line


@pytest.mark.parametrize("origin", ["user", "tool"])
def test_the_general_purpose_worker_is_covered(origin: str) -> None:
    """The worker that nobody declared is tool-spawned, whatever its boss is."""
    executed: list[str] = []
    model = shared(task("general-purpose"), [Call(tool="pick_file")], [Call(tool="read_doc")])
    agent = attach(CREATE, PolicyEngine())(model, tools(executed))
    assert coverage(agent) == ()
    agent.invoke(GO, {"configurable": {ORIGIN_KEY: origin}})
    assert executed == ["read_doc"]
    assert seen(model) == [origin == "user", False, False, False, origin == "user"]


@pytest.mark.parametrize("mode", ["isolated", "fork"])
@pytest.mark.filterwarnings("ignore:.*forked subagents:langchain_core._api.LangChainBetaWarning")
def test_declared_workers_are_covered(mode: str) -> None:
    """A declared worker is covered in either mode; a fork of Deep Agents' is a worker as well."""
    executed: list[str] = []
    worker = scripted([[Call(tool="pick_file")], [Call(tool="read_doc")]])
    spec = {
        "name": "reader",
        "description": "Reads.",
        "model": worker,
        "tools": tools(executed),
        "mode": mode,
    }
    agent = attach(CREATE, PolicyEngine())(
        scripted([task("reader")]), tools(executed), subagents=[spec]
    )
    assert coverage(agent) == ()
    agent.invoke(GO)
    assert seen(worker) == [False] * 3
    assert executed == ["read_doc"]
    assert "middleware" not in spec


def test_a_worker_s_worker_and_an_own_general_purpose() -> None:
    """An own ``general-purpose`` worker is covered and not doubled."""
    executed: list[str] = []
    worker = scripted([[Call(tool="pick_file")]])
    spec = {
        "name": "general-purpose",
        "description": "Works.",
        "model": worker,
        "tools": tools(executed),
    }
    agent = attach(CREATE, PolicyEngine())(
        scripted([task("general-purpose")]), [], subagents=[spec]
    )
    agent.invoke(GO)
    assert (seen(worker), executed) == ([False, False], [])


def test_a_ready_made_worker_is_listed(caplog: pytest.LogCaptureFixture) -> None:
    """A compiled worker cannot be changed: it is logged and listed; a covered one is neither."""
    for covered in (False, True):
        caplog.clear()
        executed: list[str] = []
        model = scripted([[Call(tool="pick_file")]])
        middleware = [Toolscope(PolicyEngine())] if covered else []
        compiled = create_agent(model, tools(executed), middleware=middleware)
        agent = attach(CREATE, PolicyEngine())(
            scripted([task("made")]),
            [],
            subagents=[{"name": "made", "description": "Made.", "runnable": compiled}],
        )
        agent.invoke(GO)
        assert executed == ([] if covered else ["pick_file"])
        assert len(coverage(agent)) == (0 if covered else 1)
        assert ("without Toolscope" in caplog.text) is not covered


def test_a_remote_worker_is_listed() -> None:
    """What runs elsewhere is protected there, and `coverage` says so."""
    agent = attach(CREATE, PolicyEngine())(
        scripted(),
        [],
        subagents=[{"name": "away", "description": "Away.", "graph_id": "away"}],
    )
    assert ["remote sub-agents" in line for line in coverage(agent)] == [True]


def test_tools_that_a_skill_discloses(tmp_path: Path) -> None:
    """They come after us: their calls are denied as unknown, and `coverage` says so."""
    folder = tmp_path / "skills" / "mail"
    folder.mkdir(parents=True)
    text = "---\nname: mail\ndescription: Mails.\nmetadata:\n  include_tools: late\n---\nUse it.\n"
    (folder / "SKILL.md").write_text(text)
    executed: list[str] = []
    backend = FilesystemBackend(root_dir=tmp_path, virtual_mode=True)
    skills: Any = SkillsMiddleware(
        backend=backend,
        sources=["/skills/"],
        tools=[make_tool(ToolSpec(name="late"), executed)],
    )
    read = Call(tool="read_file", arguments={"file_path": "/skills/mail/SKILL.md"})
    agent = attach(CREATE, PolicyEngine())(
        scripted([[read], [Call(tool="late")]]), [], middleware=[skills], backend=backend
    )
    state = agent.invoke(GO)
    assert executed == []
    assert [one.status for one in results(state)] == ["success", "error"]
    assert "There is no tool named 'late'" in results(state)[1].text
    assert all("'SkillsMiddleware' comes after Toolscope" in line for line in coverage(agent))
    assert coverage(agent)
    assert coverage(attach(CREATE, PolicyEngine())(scripted(), [], skills=["/skills/"])) == ()


@pytest.mark.usefixtures("profiles")
def test_a_profile_that_takes_us_off_is_listed() -> None:
    """An operator's profile can exclude any middleware by its name; then the agent is open."""
    register_harness_profile(
        "scripted", HarnessProfile(excluded_middleware=frozenset({"Toolscope"}))
    )
    lines = coverage(attach(CREATE, PolicyEngine())(named(), []))
    assert len(lines) == 2
    assert all("without Toolscope" in line for line in lines)


@pytest.fixture
def profiles() -> Iterator[None]:
    """Restores the host's registry, which is one for the process."""
    kept = dict(harness_profiles._HARNESS_PROFILES)
    yield
    harness_profiles._HARNESS_PROFILES.clear()
    harness_profiles._HARNESS_PROFILES.update(kept)


def task_of(agent: Any) -> BaseTool:
    found: BaseTool = agent.nodes["tools"].bound.tools_by_name["task"]
    return found


@pytest.mark.usefixtures("profiles")
def test_the_worker_is_as_the_host_would_make_it() -> None:
    """The profile of the model says whether there is a general-purpose worker, and describes it."""
    create = attach(CREATE, PolicyEngine())
    plain, ours = (task_of(one(scripted(), [])).description for one in (CREATE, create))
    assert ours == plain
    described = GeneralPurposeSubagentProfile(description="Does it all.", system_prompt="Work.")
    register_harness_profile("scripted", HarnessProfile(general_purpose_subagent=described))
    plain, ours = (task_of(one(named(), [])).description for one in (CREATE, create))
    assert ours == plain
    assert "Does it all." in ours
    off = GeneralPurposeSubagentProfile(enabled=False)
    register_harness_profile("scripted", HarnessProfile(general_purpose_subagent=off))
    assert "task" not in create(named(), [], name="alone").nodes["tools"].bound.tools_by_name


def named() -> Scripted:
    """A model whose provider the host can tell."""

    class Named(Scripted):
        def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
            return {"ls_provider": "scripted", "ls_model_name": "one", "ls_model_type": "chat"}

    return Named(turns=[], listed=[], choices=[])


def test_the_worker_inherits_what_it_would() -> None:
    """A replaced file system reaches the general-purpose worker, as without us."""
    model = shared(task("general-purpose"))
    agent = attach(CREATE, PolicyEngine())(
        model, [], middleware=[FilesystemMiddleware(tools=["read_file"])]
    )
    agent.invoke(GO)
    boss, worker, _ = model.listed
    assert "write_file" not in boss
    assert worker == ("read_file",)


def test_the_host_s_own_tools_are_decided_too() -> None:
    """An allowlist of an agent holds for the file tools and for delegation."""
    model = scripted([[Call(tool="write_file", arguments={"file_path": "/a", "content": "x"})]])
    agent = attach(
        CREATE, PolicyEngine(), scope=Scope(agent=Agent(name="reader", tools={"read_file"}))
    )(model, [])
    state = agent.invoke(GO)
    assert model.listed[0] == ("read_file",)
    assert [one.status for one in results(state)] == ["error"]
    assert not state.get("files")


def test_a_worker_s_ask_reaches_the_person() -> None:
    """The interrupt of a worker's call travels up through ``task``, and the answer down."""
    executed: list[str] = []
    refund = make_tool(ToolSpec(name="refund"), executed)
    model = shared(task("general-purpose"), [Call(tool="refund")])
    agent = attach(CREATE, PolicyEngine([Asks()]), scope=Scope(can_ask=True))(
        model, [refund], checkpointer=InMemorySaver()
    )
    (put,) = agent.invoke(GO, thread())["__interrupt__"]
    assert put.value["name"] == "refund"
    state = agent.invoke(Command(resume={"type": "approve"}), thread())
    assert executed == ["refund"]
    assert results(state)[-1].text == "done"


def test_an_interrupt_of_the_host_s_own_comes_first() -> None:
    """``interrupt_on`` asks before the policy; an edit towards a withheld tool is denied."""
    executed: list[str] = []
    agent = attach(CREATE, PolicyEngine())(
        scripted([[Call(tool="read_doc")]]),
        tools(executed),
        interrupt_on={"read_doc": True},
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1", ORIGIN_KEY: "tool"}}
    (put,) = agent.invoke(GO, config)["__interrupt__"]
    edit = {"type": "edit", "edited_action": {"name": "pick_file", "args": {}}}
    agent.invoke(Command(resume={put.id: {"decisions": [edit]}}), config)
    assert executed == []
