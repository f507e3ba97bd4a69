"""BPMN that cannot be read or played: every problem has a code, names the element, and says the way out."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ensue import QueryError
from ensue.process import read_bpmn
from inside import MAXIMAL_DEPTH_OF_MARKUP as MAXIMAL_DEPTH
from inside import MODEL
from workflow.drawing import wrap
from workflow.test_bpmn import FILES, draw


def error_of(text: str | Path, **options: object) -> QueryError:
    with pytest.raises(QueryError) as caught:
        read_bpmn(text, **options)  # type: ignore[arg-type]
    assert all(problem.message and re.fullmatch("[a-z-]+", problem.code) for problem in caught.value.problems)
    assert not re.search(r"\b(invalid|illegal|bad|failed)\b", str(caught.value), re.IGNORECASE)
    return caught.value


def codes(error: QueryError) -> list[str]:
    return [problem.code for problem in error.problems]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("<definitions", "not-xml", "unclosed token"),
        ("<a><b></a>", "not-xml", "mismatched tag"),
        ("<x:definitions/>", "not-xml", "unbound prefix"),
        ("<html/>", "not-bpmn", "`html`"),
        ('<definitions xmlns="http://schema.omg.org/spec/BPMN/1.2"/>', "not-bpmn", "BPMN 2.0 `definitions`"),
        (f'<definitions xmlns="{MODEL}"/>', "no-process", "has no process"),
        (f'<definitions xmlns="{MODEL}"><process id="p"/></definitions>', "no-process", "has no process"),
        (draw("task a", "endEvent e", f="a e"), "no-start", "the process with id `p` has no start event"),
        (draw("startEvent s", "task a", f="s a"), "missing-end", "the task with id `a` is not an end event"),
        (
            draw("startEvent s", "task a", "endEvent e", "task b", f="s a", g="a e", h="b e"),
            "unreachable-task",
            "the task with id `b` can never run",
        ),
        (
            draw("startEvent s", "task a", "endEvent e", f="s a", g="a e", h="a nowhere"),
            "loose-flow",
            "has unknown element `nowhere`",
        ),
        (draw("startEvent s", "endEvent s", f="s s"), "element-id", "two elements have the id `s`"),
        (wrap(["<startEvent/>"]), "element-id", "a start event has no id"),
    ],
    ids=lambda value: value[:40],
)
def test_files_that_are_no_process(text: str, code: str, words: str) -> None:
    error = error_of(text)
    assert codes(error)[0] == code
    assert words in str(error)
    assert error.hint


PARALLEL_JOIN_OF_A_CHOICE = draw(
    "startEvent s", 'exclusiveGateway x name="In stock?">', "task A", "task B", 'parallelGateway j name="All there">',
    "endEvent e", f1="s x", f2="x A", f3="x B", f4="A j", f5="B j", f6="j e",
)  # fmt: skip
EXCLUSIVE_JOIN_OF_PARALLEL_BRANCHES = draw(
    "startEvent s", "parallelGateway x", "task A", "task B", 'exclusiveGateway j name="Either">', "task C",
    "endEvent e", f1="s x", f2="x A", f3="x B", f4="A j", f5="B j", f6="j C", f7="C e",
)  # fmt: skip
LOOP_WITHOUT_END = draw(
    "startEvent s", "exclusiveGateway x", "task A", "exclusiveGateway m", 'task B name="Wait">', "endEvent e",
    f1="s x", f2="x A", f3="x m", f4="A e", f5="m B", f6="B m",
)  # fmt: skip


def test_a_deadlock_names_who_waits_for_whom() -> None:
    error = error_of(PARALLEL_JOIN_OF_A_CHOICE)
    assert codes(error) == ["deadlock"]
    assert (
        "the parallel gateway `All there` (id `j`) can wait forever for the task with id `B` if a run takes only the"
        " task with id `A`"
    ) in str(error)
    assert error.line == 6


def test_branches_that_are_not_synchronized() -> None:
    error = error_of(EXCLUSIVE_JOIN_OF_PARALLEL_BRANCHES)
    assert codes(error) == ["unsynchronized"]
    assert "the exclusive gateway `Either` (id `j`) can send a second token" in str(error)


def test_a_task_behind_parallel_branches_without_a_join() -> None:
    text = draw("startEvent s", "parallelGateway x", "task A", "task B", "task C", "endEvent e",
                f1="s x", f2="x A", f3="x B", f4="A C", f5="B C", f6="C e")  # fmt: skip
    assert codes(error_of(text)) == ["unsynchronized"]


def test_a_loop_that_leaves_a_token_behind() -> None:
    text = draw("startEvent s", "exclusiveGateway m", "parallelGateway x", "task A", "task B", "endEvent e",
                f1="s m", f2="m x", f3="x A", f4="x B", f5="A e", f6="B m")  # fmt: skip
    assert codes(error_of(text)) == ["unsynchronized"]


def test_a_flow_that_never_reaches_an_end() -> None:
    error = error_of(LOOP_WITHOUT_END)
    assert codes(error) == ["no-way-to-end"]
    assert "the task `Wait` (id `B`)" in str(error)


def test_a_join_that_waits_for_itself() -> None:
    text = draw("startEvent s", "parallelGateway j", "task A", "exclusiveGateway x", "endEvent e",
                f1="s j", f2="j A", f3="A x", f4="x j", f5="x e")  # fmt: skip
    assert codes(error_of(text)) == ["deadlock"]


def test_a_deadlock_in_a_sub_process() -> None:
    inside = PARALLEL_JOIN_OF_A_CHOICE.split('<process id="p">')[1].split("</process>")[0]
    text = draw("startEvent start", f'subProcess P name="Inner">{inside}', "endEvent end", a="start P", b="P end")
    assert codes(error_of(text)) == ["deadlock"]


def test_a_sub_process_without_a_start() -> None:
    text = draw("startEvent s", 'subProcess P name="Inner"><task id="A"/>', "endEvent e", f="s P", g="P e")
    error = error_of(text)
    assert codes(error) == ["no-start"]
    assert "the sub-process `Inner` (id `P`)" in str(error)


def test_a_flow_into_a_sub_process() -> None:
    inside = '<startEvent id="i"/><task id="A"/><endEvent id="o"/>'
    flows = '<sequenceFlow id="f" sourceRef="i" targetRef="A"/><sequenceFlow id="g" sourceRef="A" targetRef="o"/>'
    text = draw("startEvent s", f"subProcess P >{inside}{flows}", "endEvent e", h="s A", k="P e")
    assert codes(error_of(text)) == ["loose-flow"]


@pytest.mark.parametrize(
    ("element", "title"),
    [
        ('boundaryEvent z name="Too late" attachedToRef="A">', "the boundary event `Too late` (id `z`)"),
        ("complexGateway z", "the complex gateway with id `z`"),
        ("transaction z", "the transaction with id `z`"),
        ("adHocSubProcess z", "the ad hoc sub-process with id `z`"),
        ("choreographyTask z", "the choreography task with id `z`"),
        ('subProcess z triggeredByEvent="true">', "the sub-process with id `z`"),
        ("subProcess z ><multiInstanceLoopCharacteristics/>", "the sub-process with id `z`"),
        ('task z isForCompensation="true">', "the task with id `z`"),
        ("intermediateThrowEvent z ><compensateEventDefinition/>", "the intermediate throw event with id `z`"),
        ("intermediateThrowEvent z ><linkEventDefinition/>", "the intermediate throw event with id `z`"),
        ("endEvent z ><errorEventDefinition/>", "the end event with id `z`"),
        ("endEvent z ><cancelEventDefinition/>", "the end event with id `z`"),
    ],
)
def test_elements_without_a_meaning(element: str, title: str) -> None:
    error = error_of(draw("startEvent s", "task A", element, "endEvent e", f="s A", g="A e", h="A z", i="z e"))
    assert codes(error) == ["unsupported-element"]
    assert f"{title} is not supported" in str(error)
    assert error.hint


def test_all_elements_that_cannot_be_read_are_reported_together() -> None:
    text = draw("startEvent s", "complexGateway x", "task A", "boundaryEvent y", "endEvent e",
                f="s A", g="A e", h="y nowhere")  # fmt: skip
    error = error_of(text)
    assert codes(error) == ["unsupported-element", "unsupported-element", "loose-flow"]
    assert "unknown element `nowhere`" in str(error)


def test_problems_of_behaviour_are_reported_together_in_the_order_of_the_file() -> None:
    text = draw(
        "startEvent s", "exclusiveGateway x", "task A", "task B", "parallelGateway j", "task C", "task D",
        f1="s x", f2="x A", f3="x B", f4="A j", f5="B j", f6="j C", f7="D C",
    )  # fmt: skip
    assert codes(error_of(text)) == ["deadlock", "missing-end", "unreachable-task"]


def test_more_branches_than_can_be_selected_without_a_pair() -> None:
    tasks = [f"T{number}" for number in range(10)]
    flows = {f"a{task}": f"x {task}" for task in tasks} | {f"b{task}": f"{task} j" for task in tasks}
    nodes = ["startEvent s", "inclusiveGateway x", "inclusiveGateway j", *(f"task {task}" for task in tasks)]
    assert len(read_bpmn(draw(*nodes, "endEvent e", f="s x", g="j e", **flows)).tasks) == 10
    text = draw(*nodes, "endEvent e", f="s x", g="j e", **(flows | {"bT0": "T0 e"}))
    assert codes(error_of(text)) == ["workflow-too-large", "workflow-too-large"]


def test_several_processes_ask_which() -> None:
    error = error_of(FILES / "two_pools.bpmn")
    assert codes(error) == ["several-processes"]
    assert "the file has 2 processes: `Buyer`, `Selling`" in str(error)
    assert error.hint == 'select one: process="Buyer"'


def test_a_process_that_is_not_there() -> None:
    error = error_of(FILES / "two_pools.bpmn", process="Seling")
    assert codes(error) == ["no-such-process"]
    assert error.hint == "did you mean `Selling`?"


def test_names_that_are_not_there() -> None:
    error = error_of(FILES / "two_pools.bpmn", process="Buyer", names={"Pai": "Payment"})
    assert codes(error) == ["no-such-task"]
    assert error.hint == "did you mean `Pay`?"


def test_names_are_for_tasks_and_events() -> None:
    assert codes(error_of(FILES / "order_camunda.bpmn", names={"In stock?": "Asked"})) == ["no-such-task"]


def test_the_whole_message() -> None:
    expected = """\
error[deadlock]: the parallel gateway `All there` (id `j`) can wait forever for the task `Fetch` (id `b`) \
if a run takes only the task `Pack` (id `a`)
 --> choice_into_parallel_join.bpmn:7:5
  |
7 |     <parallelGateway id="j" name="All there"/>
  |     ^^^^^^^^^^^^^^^^
hint: join branches with the same kind of gateway that split them: exclusive or parallel"""
    assert str(error_of(FILES / "choice_into_parallel_join.bpmn")) == expected


def test_a_file_on_one_line_is_not_printed() -> None:
    error = error_of(PARALLEL_JOIN_OF_A_CHOICE.replace("\n", " "))
    assert len(str(error)) < 500
    assert error.line is None


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bpmn(tmp_path / "none.bpmn")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "p.bpmn").write_bytes(b"\x89PNG\xff\xfe")
    assert codes(error_of(tmp_path / "p.bpmn")) == ["not-xml"]
    (tmp_path / "q.bpmn").write_bytes(b'<?xml version="1.0" encoding="klingon"?><a/>')
    assert codes(error_of(tmp_path / "q.bpmn")) == ["not-xml"]


# What an attacker may send.


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE d [<!ENTITY x SYSTEM "file://{secret}">]>',
        '<!DOCTYPE d [<!ENTITY % x SYSTEM "file://{secret}"> %x;]>',
        '<!DOCTYPE d SYSTEM "http://127.0.0.1:9/evil.dtd">',
        '<!DOCTYPE d PUBLIC "-//x//y" "http://127.0.0.1:9/evil.dtd">',
        "<!DOCTYPE d>",
        '<!DOCTYPE d [<!ATTLIST process name CDATA "smuggled">]>',
    ],
)
def test_no_doctype_and_so_no_external_entity(tmp_path: Path, doctype: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    body = draw("startEvent s", 'task a name="&x;">', "endEvent e", f="s a", g="a e")
    error = error_of(doctype.replace("{secret}", str(secret)) + body)
    assert codes(error) == ["xml-doctype"]
    assert "the secret" not in str(error)


def test_no_billion_laughs() -> None:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    text = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY l0 "lol">{entities}]>' + wrap(['<task id="a" name="&l11;"/>'])
    begin = time.process_time()
    assert codes(error_of(text)) == ["xml-doctype"]
    assert time.process_time() - begin < 1


def test_no_quadratic_blowup_and_no_undeclared_entity() -> None:
    text = f'<!DOCTYPE d [<!ENTITY big "{"x" * 100_000}">]>' + wrap([f'<task id="a" name="{"&big;" * 1000}"/>'])
    assert codes(error_of(text)) == ["xml-doctype"]
    assert codes(error_of(wrap(['<task id="a" name="&big;"/>']))) == ["not-xml"]


def test_depth_is_a_rule_and_not_a_crash() -> None:
    assert codes(error_of("<a>" * (MAXIMAL_DEPTH + 1))) == ["too-deep"]
    nested = "<subProcess>" * 5000 + "</subProcess>" * 5000
    assert codes(error_of(wrap([nested]))) == ["too-deep"]


def test_reading_opens_no_connection_and_no_other_file(tmp_path: Path) -> None:
    """An audit hook sees every file and socket that Python opens while the parser runs."""
    path = tmp_path / "evil.bpmn"
    path.write_text('<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]>' + wrap(['<task id="&x;"/>']))
    code = (
        "import sys\n"
        "from ensue.process import read_bpmn\n"
        "from ensue.errors import QueryError\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append((event, str(args[0]))) if event in\n"
        "                 ('open', 'socket.connect', 'urllib.Request') else None)\n"
        "try:\n"
        "    read_bpmn(sys.argv[1])\n"
        "except QueryError:\n"
        "    print([item for item in seen if not item[1].endswith('.py')])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str([("open", str(path))])
