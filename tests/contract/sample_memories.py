"""Memories that the search tests look for."""

from __future__ import annotations

from typing import Any

NOTES = {
    "marta/calls": "Marta prefers to be phoned after lunch, never in the morning.",
    "lisbon": "The Lisbon branch closes on the 24th of December.",
    "brightwell": "Invoices from Brightwell must show purchase order 88213.",
    "jonas": "Jonas is allergic to peanuts and carries an injection pen.",
    "天气": "北京的天气很好，明天去公园。",
    "会議": "東京の会議は金曜日です。",
}


def keys(page: dict[str, Any]) -> list[str]:
    return [row["key"] for row in page["results"]]
