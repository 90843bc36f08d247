"""Transcriptions: from a recording to windows, runs on the fleet, and segments."""
