"""Engines carry calls to sites and bring answers back; each engine has one file or one folder."""
