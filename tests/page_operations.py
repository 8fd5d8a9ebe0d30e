"""Operations that only the web pages use; tests of the pages call them with limited keys."""

from __future__ import annotations

ON_PAGES = {
    "check_reply",
    "check_rule",
    "compare_rules",
    "edit_memory",
    "find_contacts",
    "finish_sign_in",
    "get_access_request",
    "get_account",
    "get_activity",
    "get_delivery",
    "get_health",
    "get_key",
    "get_load",
    "get_marked_message",
    "get_message_html",
    "get_plan_changes",
    "get_webhook",
    "grant_access",
    "list_namespaces",
    "list_rule_plans",
    "list_rule_states",
    "list_stopped_rules",
    "preview_forward",
    "preview_reply",
    "replace_rule",
    "save_draft",
    "start_sign_in",
    "verify_audit",
}
