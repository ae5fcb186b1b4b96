"""The federated fuzzy c-means that papers 0 and 2 compare with: averaged (FedFCM) and by gradient (GDF-FCM)."""
