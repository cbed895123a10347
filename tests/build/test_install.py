"""What a browser needs of the machine: installed by the set-up, once; where it cannot be, told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from book import chromium, install, paths
from book.export import offline
from processes import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="apt-get is Linux's")


def put(path: Path, script: str = "") -> None:
    """A command of a few lines."""
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands, the only one: what is in it is what the machine has."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(chromium, "of_playwright", lambda: None)
    monkeypatch.setattr(chromium, "has_libatomic", lambda: True)
    monkeypatch.setattr(install, "DPKG", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def put_apt_get(folder: Path) -> None:
    """An apt-get that brings the last package it is asked for; it bears no other beside it."""
    put(folder / "fc-list", f"[ ! -e {folder}/fonts-noto-cjk ] || echo Noto")
    put(
        folder / "apt-get",
        f"""mkdir {folder}/held || exit 100
        echo "$@" >> {folder}/log
        sleep 0.2
        for package; do :; done
        echo '#!/bin/sh' > {folder}/$package
        chmod +x {folder}/$package
        rmdir {folder}/held""",
    )


def test_missing_names_what_the_machine_lacks(bare: Path) -> None:
    assert [need.name for need in chromium.missing()] == ["font for Chinese", "Chromium"]
    put(bare / "fc-list", "echo Noto")
    put(bare / "google-chrome")
    assert not chromium.missing() and chromium.executable() == str(bare / "google-chrome")
    put(bare / "fc-list")
    assert [need.name for need in chromium.missing()] == ["font for Chinese"]


def test_browser_installs_what_is_missing_and_nothing_more(bare: Path) -> None:
    put_apt_get(bare)
    put(bare / "chromium-browser")
    install.browser()
    install.browser()
    ran = (bare / "log").read_text().splitlines()
    assert [line.partition("600 ")[2].split()[0] for line in ran] == ["update", "install"]
    assert ran[1].endswith(" fontconfig fonts-noto-cjk") and not chromium.missing()


def test_browser_without_root_or_apt_get_says_what_to_do(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    install.browser()
    put_apt_get(bare)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    install.browser()
    said = capsys.readouterr().err
    assert said.count("apt-get install fontconfig fonts-noto-cjk chromium\n") == 2
    assert said.count("playwright install --with-deps chromium") == 2
    assert not (bare / "log").exists()


def test_two_set_ups_at_once_install_once(bare: Path) -> None:
    put_apt_get(bare)
    script = f"""
import pathlib
from book import chromium, install
chromium.has_libatomic.__code__ = (lambda: True).__code__
chromium.of_playwright = lambda: None
install.DPKG = pathlib.Path({str(bare)!r})
install.os.geteuid = lambda: 0
install.browser()
"""
    env = {**os.environ, "PYTHONPATH": str(paths.DOCS)}
    both = [Process(sys.executable, "-c", script, env=env) for _ in range(2)]
    for process in both:
        status, _, err = process.end()
        assert (status, err) == (0, "")
    ran = (bare / "log").read_text().splitlines()
    assert [line.split()[-1] for line in ran] == [ran[0].split()[-1], "fonts-noto-cjk", "chromium"]


def test_a_command_without_chromium_says_what_to_do(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["offline", "pdf"])
    assert offline.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("\nThere is no font for Chinese and no Chromium here. On Debian `make ")


def test_scikit_learn_says_nothing_where_cores_cannot_be_counted(tmp_path: Path) -> None:
    """It asks lscpu, which needs /sys. What a cell writes to stderr would end the build."""
    put(tmp_path / "lscpu", "exit 1")
    code = """
from sklearn.neighbors import KNeighborsClassifier
points = [[0.0], [1.0], [2.0]] * 50
print(KNeighborsClassifier(1, algorithm="brute").fit(points, [0, 1, 2] * 50).predict([[1.9]]))"""
    env = os.environ | paths.PLACES_ENV | {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[2]\n", "")
