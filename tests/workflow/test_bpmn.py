"""BPMN files: what is read from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ensue.process import Workflow, read_bpmn, workflow
from inside import Ends, Exclusive, Prior, Require, tokens
from workflow.brute_force import spelled_out
from workflow.drawing import wrap

FILES = Path(__file__).parent / "bpmn"
ORDER = (
    "PlaceOrder -> CheckInventory -> (UseLocalStock | (UseRemoteStock -> {OrderFromSupplier -> GenerateQuote+,"
    " GenerateInvoice})) -> [CreditCheck] -> (FinishOrder | CancelOrder)"
)


def draw(*elements: str, **flows: str) -> str:
    """A process of `kind id` elements (plus attributes and content) and flows given as id="source target"."""
    lines = []
    for element in elements:
        kind, identity, *content = element.split(" ", 2)
        lines.append(f'<{kind} id="{identity}" {content[0] if content else "/>"}' + (f"</{kind}>" if content else ""))
    for identity, ends in flows.items():
        source, target, *content = ends.split(" ", 2)
        body = content[0] if content else ""
        lines.append(f'<sequenceFlow id="{identity}" sourceRef="{source}" targetRef="{target}">{body}</sequenceFlow>')
    return wrap(lines)


def same_traces(one: Workflow, other: Workflow) -> bool:
    return spelled_out(one.constraints()) == spelled_out(other.constraints())


@pytest.mark.parametrize("name", ["order_camunda.bpmn", "order_signavio.bpmn"])
def test_order_fulfilment_of_two_modelers(name: str) -> None:
    drawn = read_bpmn(FILES / name)
    assert drawn.tasks[:2] == ("PlaceOrder", "CheckInventory")
    assert same_traces(drawn, workflow(ORDER))
    assert read_bpmn(str(FILES / name)) == read_bpmn((FILES / name).read_text("utf-8")) == drawn


def test_names_of_tasks_can_be_mapped() -> None:
    names = {"CheckInventory": "Stock", "Activity_0k1x2ab": "Order", "Order received": "Received", "CreditCheck": None}
    drawn = read_bpmn(FILES / "order_camunda.bpmn", names=names)
    assert drawn.tasks[:3] == ("Received", "Order", "Stock")
    assert "CreditCheck" not in drawn.tasks
    assert Prior("Received", "Order") in drawn.constraints()


def test_tasks_of_one_name_are_one_task() -> None:
    drawn = read_bpmn(
        draw(
            "startEvent s", 'task a name="Call\n  them">', 'task b name="Call them">', "task c", "endEvent e",
            f1="s a", f2="a c", f3="c b", f4="b e",
        )
    )  # fmt: skip
    assert same_traces(drawn, workflow("`Call them` -> c -> `Call them`"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<standardLoopCharacteristics/>", "A -> B+ -> C"),
        ("<multiInstanceLoopCharacteristics/>", "A -> B+ -> C"),
        ('<standardLoopCharacteristics testBefore="true"/>', "A -> B* -> C"),
        ("<extensionElements/><documentation>long</documentation>", "A -> B -> C"),
    ],
)
def test_markers_on_a_task(content: str, text: str) -> None:
    drawn = read_bpmn(
        draw("startEvent s", "task A", f"task B >{content}", "task C", "endEvent e", f="s A", g="A B", h="B C", i="C e")
    )
    assert same_traces(drawn, workflow(text))
    assert drawn.accepts(["A", "B", "B", "B", "C"]) == (text != "A -> B -> C")


@pytest.mark.parametrize(
    ("attributes", "marker", "text"),
    [
        ("", "", "A -> {B, C}"),
        ("", "<standardLoopCharacteristics/>", "A -> {B, C}+"),
        ("", '<standardLoopCharacteristics testBefore="true"/>', "A -> {B, C}*"),
        ("", '<multiInstanceLoopCharacteristics isSequential="true"/>', "A -> {B, C}+"),
    ],
)
def test_sub_processes_end_when_nothing_runs_in_them(attributes: str, marker: str, text: str) -> None:
    inside = "".join(
        [
            '<startEvent id="s2"/><task id="B"/><task id="C"/><endEvent id="e2"/><endEvent id="e3"/>',
            '<sequenceFlow id="i1" sourceRef="s2" targetRef="B"/><sequenceFlow id="i2" sourceRef="s2" targetRef="C"/>',
            '<sequenceFlow id="i3" sourceRef="B" targetRef="e2"/><sequenceFlow id="i4" sourceRef="C" targetRef="e3"/>',
        ]
    )
    drawn = read_bpmn(
        draw("startEvent s", "task A", f"subProcess P {attributes}>{marker}{inside}", "endEvent e",
             f="s A", g="A P", h="P e")
    )  # fmt: skip
    assert same_traces(drawn, workflow(text))


def test_several_flows_out_of_a_task() -> None:
    condition = "<conditionExpression>x</conditionExpression>"
    drawn = read_bpmn(
        draw(
            "startEvent s", 'task A default="d">', "task B", "task C", "task D", "inclusiveGateway j", "endEvent e",
            f1="s A", f2=f"A B {condition}", f3=f"A C {condition}", d="A D", f4="B j", f5="C j", f6="D j", f7="j e",
        )
    )  # fmt: skip
    assert same_traces(drawn, workflow("A -> (B | C | {B, C} | D)"))


def test_an_inclusive_split_takes_its_default_alone() -> None:
    drawn = read_bpmn(
        draw(
            "startEvent s", 'inclusiveGateway x default="d">', "task A", "task B", "task C", "inclusiveGateway j",
            "endEvent e", f1="s x", f2="x A", f3="x B", d="x C", f4="A j", f5="B j", f6="C j", f7="j e",
        )
    )  # fmt: skip
    assert same_traces(drawn, workflow("A | B | {A, B} | C"))


def test_inclusive_joins_without_a_pair_wait_as_the_standard_says(monkeypatch: pytest.MonkeyPatch) -> None:
    text = draw(
        "startEvent s", "inclusiveGateway x", "task A", "task B", "task C", "inclusiveGateway j", "task D",
        "endEvent e", f1="s x", f2="x A", f3="x B", f4="A C", f5="B j", f6="C j", f7="j D", f8="D e",
    )  # fmt: skip
    paired = read_bpmn(text)
    monkeypatch.setattr(tokens, "inclusive_pairs", lambda scope: {})
    assert same_traces(paired, read_bpmn(text))
    assert same_traces(paired, workflow("(A -> C | B | {A -> C, B}) -> D"))


def test_an_inclusive_join_of_a_parallel_split_with_a_choice_in_one_branch() -> None:
    drawn = read_bpmn(
        draw(
            "startEvent s", "parallelGateway p", "task A", "exclusiveGateway x", "task B", "task C",
            "inclusiveGateway j", "task D", "endEvent e", "endEvent e2",
            f1="s p", f2="p A", f3="p x", f4="A j", f5="x B", f6="x C", f7="B j", f8="C e2", f9="j D", f10="D e",
        )
    )  # fmt: skip
    assert drawn.accepts(["B", "A", "D"])
    assert not drawn.accepts(["A", "D", "B"])
    assert drawn.accepts(["A", "D", "C"])
    assert not {Require("D", "B"), Exclusive(("B", "D")), Ends(("D",))} & spelled_out(drawn.constraints())
    assert Prior("B", "D") in drawn.constraints()


def test_a_terminating_end_stops_what_runs_in_parallel() -> None:
    drawn = read_bpmn(
        draw(
            "startEvent s", "parallelGateway p", "task A", "task B", "task C",
            "endEvent e ><terminateEventDefinition/>", "endEvent e2",
            f1="s p", f2="p A", f3="p B", f4="A e", f5="B C", f6="C e2",
        )
    )  # fmt: skip
    assert drawn.accepts(["A"])
    assert drawn.accepts(["B", "C", "A"])
    assert drawn.accepts(["B", "A"])
    assert not drawn.accepts(["B", "C"])


def test_events_and_event_based_gateways() -> None:
    drawn = read_bpmn(
        draw(
            "startEvent s1", "startEvent s2", "exclusiveGateway m", "eventBasedGateway x",
            'intermediateCatchEvent t name="late"><timerEventDefinition/>', "receiveTask A", "task B",
            "endEvent e", "endEvent e2",
            f0="s1 m", f1="s2 m", f2="m x", f3="x t", f4="x A", f5="t B", f6="B e", f7="A e2",
        )
    )  # fmt: skip
    assert same_traces(drawn, workflow("A | B"))


def test_processes_are_chosen_by_name_pool_or_id() -> None:
    text = (FILES / "two_pools.bpmn").read_text("utf-8")
    assert read_bpmn(text, process="Selling").tasks == ("Sell",)
    assert read_bpmn(text, process="Buyer").tasks == ("Buy", "Pay")
    assert read_bpmn(text, process="buying").tasks == ("Buy", "Pay")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = draw("startEvent s", 'task a name="Prüfen">', "endEvent e", f="s a", g="a e")
    declared = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>{text}'
    (tmp_path / "p.bpmn").write_bytes(declared.encode(encoding))
    assert read_bpmn(tmp_path / "p.bpmn").tasks == ("Prüfen",)
