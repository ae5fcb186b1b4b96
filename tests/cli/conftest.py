"""One user with a fresh folder for each test."""

import numpy as np
import pytest
from cli_user import User, csv, rows


@pytest.fixture
def user(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDCLUST_DEBUG", raising=False)
    someone = User(tmp_path, capsys)
    someone.write("cleveland.csv", csv(["age", "bp", "chol"], np.c_[rows(1), np.arange(40.0)]))
    someone.write("hungary.csv", csv(["age", "bp", "chol"], np.c_[rows(2), np.arange(40.0)]))
    someone.study()
    return someone
