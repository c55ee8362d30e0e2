/** Names of unknown fields are shown cut if they are longer. */
const SHOWN_NAME_MAX = 64;

/** The name of an unknown field, cut. */
export function shortName(name: string): string {
  return name.length <= SHOWN_NAME_MAX ? name : `${name.slice(0, SHOWN_NAME_MAX)}...`;
}

/** A value as an error message shows it. Long texts are not quoted, only their length is shown. */
export function formatValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Object.is(value, -0)) return '-0';
  if (value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY) {
    return 'a number beyond all bounds';
  }
  if (typeof value === 'string') {
    return value.length <= 64 ? JSON.stringify(value) : `a text of ${[...value].length} characters`;
  }
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}
