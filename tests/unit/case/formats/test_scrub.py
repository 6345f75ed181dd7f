"""Scrubbing: each kind of secret goes, in each spelling; what must run and parse still does."""

import ast
import json
import time
from pathlib import Path

import pytest

from ctk.toolkit.case.formats.files import append_line, write_text
from ctk.toolkit.case.formats.scrub import MARK, scrub

VALUE = 'tok-9f8e7d"6c\\5b4a'
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", VALUE)
    monkeypatch.setenv("DB_PASSWORD", "correcthorse")
    monkeypatch.setenv("CTK_SECRET", "ours-is-no-exception")
    monkeypatch.setenv("TLS_PRIVATE_KEY", "first-line-of-it\nsecond-line-of-it")
    monkeypatch.setenv("HOME", "/home/you")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"token {VALUE}!", f"token {MARK}!"),
        ("at second-line-of-it.", f"at {MARK}."),
        ("ours-is-no-exception", MARK),
        ("a correcthorse, correcthorses", f"a {MARK}, correcthorses"),
        ("https://me:p@w@host.org/x", f"https://{MARK}@host.org/x"),
        ("redis://:hunter2@host", f"redis://{MARK}@host"),
        ("s3://b/k?X-Amz-Signature=0a9b&y=1", f"s3://b/k?X-Amz-Signature={MARK}&y=1"),
        ("http://h/?y=1&access_token=abc", f"http://h/?y=1&access_token={MARK}"),
        ("http://h/?sig=abc'", f"http://h/?sig={MARK}'"),
        ("AKIAIOSFODNN7EXAMPLE", MARK),
        ("ghp_" + "a1" * 18, MARK),
        ("github_pat_" + "a1" * 18, MARK),
        ("hf_" + "aB" * 17, MARK),
        ("sk-proj-" + "a1" * 12, MARK),
        (JWT, MARK),
        ("Authorization: Bearer abc123def456ghi789", f"Authorization: Bearer {MARK}"),
        ("password = 'hunter2!'", f"password = '{MARK}'"),
        ('{"client_secret": "hunter2!"}', f'{{"client_secret": "{MARK}"}}'),
        ("open /home/you/x", "open ~/x"),
    ],
)
def test_it_goes(text: str, wanted: str) -> None:
    assert scrub(text) == wanted
    assert scrub(wanted) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "torch.ops.aten.add.Tensor(x_1, 2.5, alpha=1)",
        'f"https://{user}:{password}@host"',
        "git clone ssh://git@github.com/a/b",
        "password = get_password()",
        "sub-mask-of-the-attention-scores-2 and task-sk-learn",
        "key = 'weight'; token = tokenizer.eos_token",
        "/home/you-2/x and /mnt/home/you",
        "a?b:c=d, x[1] @ y, 3://4",
    ],
)
def test_it_stays(text: str) -> None:
    assert scrub(text) == text


def test_a_key_block_goes_and_lines_keep_their_numbers() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc+/=\nMIIdef\n-----END RSA PRIVATE KEY-----"
    text = f'a = 1\nKEY = """{key}"""\nb = 2\n'
    scrubbed = scrub(text)
    assert "MII" not in scrubbed and scrubbed.splitlines()[-1] == "b = 2"
    assert scrubbed.count("\n") == text.count("\n")


def test_json_stays_json_and_python_stays_python(tmp_path: Path) -> None:
    secret = f"https://u:p@h/?token=abc {VALUE} {JWT} /home/you/x"
    write_text(tmp_path / "a.json", json.dumps({"x": secret, "y": [1, 2.5]}))
    data = json.loads((tmp_path / "a.json").read_text())
    assert data == {"x": f"https://{MARK}@h/?token={MARK} {MARK} {MARK} ~/x", "y": [1, 2.5]}
    append_line(tmp_path / "log", json.dumps({"x": secret}))
    assert json.loads((tmp_path / "log").read_text())["x"] == data["x"]
    write_text(tmp_path / "a.py", f"x = {secret!r}\n# {VALUE}\n")
    ast.parse((tmp_path / "a.py").read_text())
    for path in tmp_path.iterdir():
        assert "6c" not in path.read_text() and "home/you" not in path.read_text()


@pytest.mark.parametrize("value", ["1", "true", "cpu", "inductor", "placeholder", "12345678"])
def test_values_that_protect_nothing_stay(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSION_TOKEN", value)
    assert scrub(f"{value} = {value}") == f"{value} = {value}"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "PWD", "MONKEY", "AUTHOR"])
def test_names_that_only_resemble_are_no_secrets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "value-of-no-secret")
    assert scrub("value-of-no-secret") == "value-of-no-secret"


def test_a_long_text_takes_no_time() -> None:
    started = time.monotonic()
    for text in ("a" * 300_000, "://" * 100_000, "?token" * 50_000, "eyJ" * 100_000, "-" * 300_000):
        scrub(text)
    assert time.monotonic() - started < 10  # a pattern that backtracks would take hours
