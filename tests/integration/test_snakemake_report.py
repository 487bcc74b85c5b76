"""`snakemake --report`: the campaign's figures and tables, labelled, in Snakemake's own report."""

from __future__ import annotations

from integration.workflow_copy import Workflow

LABELS = {
    "Report": "the whole report",
    "Figures": "speed-up at every level",
    "Tables": "every comparison at every level",
}


def test_figures_and_tables_are_in_it_with_category_label_and_caption(workflow: Workflow):
    workflow.run("--report", "report.html")
    page = (workflow.folder / "report.html").read_text()
    for category, label in LABELS.items():
        assert f'"{category}"' in page
        assert label in page
    for name in ("crossover.html", "summary.png", "levels.csv"):
        assert name in page
    for caption in ("Lines join the estimates at", "hold at all levels of a comparison together"):
        assert caption in page
    assert not workflow.plan(), "to report is no reason to run anything again"
