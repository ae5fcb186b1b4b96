"""Federations that exchange signed files through folders, for sites that allow no connection."""
