"""FCAC (paper 3): each site's rows train a net of nodes (CA+), and all sites' nodes train another (CAE_FC).

    site         net <- CA+(net, rows in their order); sends all nodes with their winning counts
    coordinator  per site: nodes whose count is at least the site's 75th percentile; all of these, shuffled,
                 then all others, shuffled; net <- CAE_FC(net, that stream)
    cluster      a connected component of the coordinator's net; a row belongs to the component of its nearest node

The nets are never initialised again: in a later round they continue with new rows, and all current nodes of the sites
train the coordinator's net again. Most nodes of a small site are its rows, bit for bit, so a site must allow this
question by name.

Paper: Masuyama et al., federated clustering by adaptive resonance. Its text and its published runs differ; this is the
setting of the runs.
"""
