"""The version of all coordinator scripts together: it changes whenever a script asks another question.

Sites of a verified run compare questions bit by bit with those of their own script, so a coordinator and its sites must
have the same version, and a steward approves one version.
"""

SCRIPT_VERSION = 1
# Of the questions that the golden cases ask, by handler. A change needs a new number above, and then the new digest.
GOLDEN_QUESTIONS_DIGEST = "3b819c03bdab3e3559291fccd32ac923c68cf4ba03ab40f4eaa99c3d87800f0e"
