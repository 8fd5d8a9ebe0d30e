"""Operations on stored mail."""
