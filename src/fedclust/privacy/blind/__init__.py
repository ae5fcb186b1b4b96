"""Blind mode: a coordinator that carries and adds what it cannot read, for a site that leads the run.

- `blind_aggregation`: the group key, questions and answers hidden under it, and `Blind`, which rewrites a protocol so
  that the lead can drive it. What a site does with a hidden question is here, too; `site.server` calls it.
- `blind_adder`: the coordinator, as an engine that adds hidden answers up and records what it saw.
- `lead_relay`: the same between machines: the lead's engine, and what the coordinator answers it.

Elsewhere is only what connects it: `federation.aggregation` chooses among plain, secure and blind,
`federation.federation` puts the adder before its engine, `app.blind_lead` runs the lead at its site,
`app.blind_relay` runs the coordinator, and an encrypted call is marked `is_encrypted` once a site has read it.
"""
