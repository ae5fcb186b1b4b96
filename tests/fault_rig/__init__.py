"""The fault rig runs real federations on one machine and makes them fail on purpose."""
