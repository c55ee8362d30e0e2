/** The text by which envoyproxy/ratelimit knows an entry or a rule at its level. */

/** @param value undefined for a rule that matches all values of its key */
export function joinedText(key: string, value: string | undefined): string {
  return value === undefined ? key : `${key}_${value}`;
}
