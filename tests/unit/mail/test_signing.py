"""A signature under what is sent."""

from __future__ import annotations

from postroom.mail.compose import with_signature


def test_both_versions_are_signed_and_a_mail_without_one_is_not() -> None:
    text, html = with_signature(
        "Hello\n", "<html><body><p>Hello</p></body></html>", "<b>Ana</b> Lee"
    )

    assert "Hello\n\n-- \nAna Lee\n" == text
    assert html is not None
    assert html.endswith('<div class="signature">-- <br><b>Ana</b> Lee</div></body></html>')
    assert ("Hello", None) == with_signature("Hello", None, "")
    assert (None, "<p>x</p>") == with_signature(None, "<p>x</p>", "")
