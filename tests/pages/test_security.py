"""What may run: in a page this site alone, at install what the locks name, in CI little."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from built_site import PAGES, ROOT
from packaging.requirements import Requirement
from playwright.sync_api import Browser, Page
from test_search import NASTY, fuzz

from book import install, policy
from processes import wait_until

# -- pages -----------------------------------------------------------------------------------------

ZH = [path for path in PAGES if path.startswith("zh/")]
SOME = ["en/index.html", "en/see.html", "en/async.html", "en/memory.html"]
FRAME = ["index.html", "zh/404.html", "zh/search.html", "en/search.html"]
WATCH = """window.refused = [];
addEventListener("securitypolicyviolation",
  e => refused.push(`${e.effectiveDirective}: ${e.blockedURI} ${e.sample}`));"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Page:
    """A page that keeps what its policy has refused."""
    page = browser.new_page()
    page.add_init_script(WATCH)
    return page


def refused(page: Page) -> list[str]:
    """What was refused so far; an event is told after the task that caused it."""
    return page.evaluate("() => new Promise(done => setTimeout(() => done(refused)))")


def test_every_page_of_the_site_has_the_policy(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text("utf8")
        (said,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', text)
        assert all(f"{name} {sources}" in said for name, sources in policy.POLICY.items())
        unsafe = [each for each in said.split("; ") if "unsafe" in each]
        assert unsafe == ["style-src-attr 'unsafe-inline'"], file
        assert text.index(said) < text.index("<title>"), file
        assert not re.findall(r'<\w[^<>]* on[a-z]+="', text), file


def test_no_page_asks_for_what_its_policy_refuses(page: Page, server: str) -> None:
    wrong, inputs = [], {}
    for path in ZH + SOME + FRAME:
        page.goto(f"{server}/{path}")
        wrong += [f"{path}, {what}" for what in refused(page)]
        styles = page.locator("main [style]").evaluate_all("all => all.map(e => e.style.length)")
        wrong += [f"{path}: a style is lost"] * (not all(styles))
        inputs[path] = page.locator("article input:not(.search-input)").count()
    assert not wrong, "\n".join(wrong)
    for path in (path for path, count in inputs.items() if count):  # filters
        type_hostile_strings(page, f"{server}/{path}")


def type_hostile_strings(page: Page, url: str) -> None:
    """Whatever is typed into the filter of a page, it makes no element and is not refused."""
    page.goto(url)
    added = page.evaluate(
        """async texts => {
          const made = [];
          new MutationObserver(seen => seen.forEach(m => made.push(...m.addedNodes)))
            .observe(document, {childList: true, subtree: true});
          for (const text of texts)
            for (const input of document.querySelectorAll("article input")) {
              input.value = text;
              input.dispatchEvent(new Event("input", {bubbles: true}));
            }
          await new Promise(done => setTimeout(done));
          return made.filter(e => e.matches?.("script, img, svg, iframe, b")).map(e => e.outerHTML);
        }""",
        [*NASTY, *fuzz(100)],
    )
    assert not added and not refused(page), url


def test_the_policy_refuses_what_a_hostile_page_would_do(page: Page, server: str) -> None:
    hostile = """<script>ran = 1</script><script src="https://else.test/x.js"></script>
      <img src=x onerror="ran = 2"><img src="https://else.test/x.png"><style>p {color: red}</style>
      <p style="background: url(https://else.test/y.png)">a</p>
      <iframe src="https://else.test"></iframe><object data="https://else.test"></object>
      <form action="https://else.test"></form><base href="https://else.test">"""

    def answer(route) -> None:
        text = route.fetch().text()
        route.fulfill(body=text.replace("</body>", f"{hostile}</body>"), content_type="text/html")

    page.route("**/en/jit.html", answer)
    page.goto(f"{server}/en/jit.html")
    page.evaluate("""async () => {
      for (const act of [() => document.body.innerHTML = "<b>a</b>", () => setTimeout("ran = 3"),
                         () => document.write("<b>a</b>"), () => document.forms[0].submit(),
                         () => document.createElement("script").src = "x.js"])
        try { act() } catch { }
      await fetch("https://else.test/?told").catch(() => {});
    }""")
    kinds = {
        *("script-src-elem", "script-src-attr", "style-src-elem", "img-src", "frame-src"),
        *("object-src", "form-action", "base-uri", "connect-src", "require-trusted-types-for"),
    }
    wait_until(lambda: kinds <= {what.partition(":")[0] for what in refused(page)})
    assert kinds == {what.partition(":")[0] for what in refused(page)}
    assert any("else.test/y.png" in what for what in refused(page)), "a style loads nothing either"
    assert page.evaluate("typeof ran") == "undefined"
    page.unroute("**/en/jit.html")


# -- packages --------------------------------------------------------------------------------------


def test_every_locked_package_has_one_version_and_its_digests() -> None:
    for lock in ("requirements.lock", "requirements-test.lock"):
        text = (ROOT / lock).read_text("utf8")
        entries = text.replace("\\\n", " ").splitlines()
        assert len(entries) > 50
        for entry in entries:
            what, *digests = entry.split(" --hash=")
            assert re.fullmatch(r"==[\w.!+]+", str(Requirement(what).specifier)), entry[:80]
            assert digests and all(re.fullmatch(r"sha256:[0-9a-f]{64} *", d) for d in digests)
        assert "://" not in text, "no index has a say in where a package comes from"


@pytest.mark.parametrize("uv_works", [True, False])
def test_nothing_is_installed_without_its_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uv_works: bool
) -> None:
    """Each command that installs asks for digests, but for that of this project, without index."""
    ran: list[str] = []

    def run(*command: object, **_: str) -> bool:
        ran.append(" ".join(map(str, command)))
        return uv_works or "/uv " not in ran[-1]

    monkeypatch.setattr(install, "run", run)
    monkeypatch.setattr(install, "VENV", tmp_path)
    monkeypatch.setattr(install, "PYTHON", Path(sys.executable))
    assert install.install("test")
    *others, ours = ran
    assert len(others) == (2 if uv_works else 3)
    assert all("--require-hashes" in command for command in others)
    assert "--no-deps" in ours and "--no-index" in ours and ours.endswith(" -e .")


# -- workflows -------------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_may_do_little_and_runs_only_what_it_names_by_digest(file: Path) -> None:
    text = file.read_text("utf8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] in ({"contents": "read"}, {}), "what a job needs, the job says"
    for job in workflow["jobs"].values():
        assert job.get("timeout-minutes")
        writes = {name for name, may in job.get("permissions", {}).items() if may == "write"}
        assert writes <= {"contents", "issues"} and "write-all" not in text
        for step in job["steps"]:
            action = step.get("uses", "")
            assert not action or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
            if "actions/checkout@" in action and not writes:
                assert step["with"]["persist-credentials"] is False, "no later step has the token"
            untrusted = r"\$\{\{ *github\.(?:event|head_ref|ref_name)"
            assert not re.search(untrusted, step.get("run", "")), "a branch's name is no command"
    assert "pull_request_target" not in text
    assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v[\d.]+\n", text)) == text.count("uses: ")
