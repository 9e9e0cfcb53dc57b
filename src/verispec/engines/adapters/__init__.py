"""Adapters: one module or package per engine."""
