/** Identifiers as weir accepts them. */

/** The longest identifier that weir accepts, in Unicode code points. */
const IDENTIFIER_MAX = 512;

/**
 * weir rejects a long identifier, and one that is not well-formed Unicode. A client must not get
 * the decision of `onError` by it.
 */
export async function shorten(identifier: string): Promise<string> {
  // JSON escapes what is not well-formed, so that different texts stay different.
  if (!identifier.isWellFormed()) return `sha256-json:${await digest(JSON.stringify(identifier))}`;
  const { length } = identifier;
  const isShort =
    length <= IDENTIFIER_MAX ||
    // A code point has at most two units, so a longer text need not be counted.
    (length <= 2 * IDENTIFIER_MAX && [...identifier].length <= IDENTIFIER_MAX);
  return isShort ? identifier : `sha256:${await digest(identifier)}`;
}

async function digest(text: string): Promise<string> {
  const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return Buffer.from(bytes).toString('hex');
}
