"""`docs/telemetry.md` and the dashboard are current."""

import json
import re
from pathlib import Path

from elastic.master.telemetry import DENSE_UPDATES
from elastic.spec.settings.work import METRICS_PORT
from elastic.telemetry.board import QUEUE_LENGTH, RETRY_S
from elastic.telemetry.prometheus import MASTER_METRICS, WORKER_METRICS, series_names, tables

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "telemetry.md").read_text()
DASHBOARD = json.loads((ROOT / "manifests" / "grafana-dashboard.json").read_text())


def test_every_metric_is_in_its_table():
    (written,) = re.findall(r"<!-- metrics: .*? -->\n(.*?)\n*<!-- end", GUIDE, re.DOTALL)
    assert written.strip() == tables().strip(), (
        "write it anew: python -m elastic.telemetry.prometheus, between the marks of the page"
    )


def test_the_numbers_of_the_page_are_those_of_the_code():
    assert f"first {DENSE_UPDATES} updates" in GUIDE
    assert f"queue of {QUEUE_LENGTH}" in GUIDE
    assert f"every {RETRY_S:.0f} seconds" in GUIDE
    assert f"it is {METRICS_PORT} unless" in GUIDE


def test_the_dashboard_shows_every_metric_and_only_those():
    known = {name for m in (*MASTER_METRICS, *WORKER_METRICS) for name in series_names(m)}
    expressions = [t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"]]
    queried = {name for e in expressions for name in re.findall(r"elastic_[a-z_]+", e)}
    assert queried <= known
    metrics = (*MASTER_METRICS, *WORKER_METRICS)
    assert [m.name for m in metrics if not queried & set(series_names(m))] == []


def test_the_dashboard_asks_for_data_source_and_job():
    variables = {v["name"]: v for v in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["job_name"]["query"].startswith("label_values(")
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all('job_name="$job_name"' in target["expr"] for target in panel["targets"])


def test_no_two_panels_lie_on_each_other():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
