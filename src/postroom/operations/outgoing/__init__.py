"""Operations on outgoing mail: sending, drafts, the outbox, approval."""
