"""Crossover: at which concurrency does a feature of an LLM server stop paying?"""
