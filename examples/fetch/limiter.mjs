// @ts-check
/**
 * A client of weir. `fetch` keeps its connections to weir open between checks, and closes them
 * before weir does. Each check is sent once: weir may have counted a check without a response.
 */

const WEIR_URL = process.env.WEIR_URL ?? 'http://127.0.0.1:7070';
const WEIR_KEY = process.env.WEIR_KEY;
if (!WEIR_KEY) throw new Error('WEIR_KEY is not set');

/** Five requests a minute for each identifier. */
const LIMIT = { namespace: 'search', limit: 5, duration: 60_000 };
/** A flood delays responses on a busy machine. A shorter timeout would allow a part of it. */
const TIMEOUT_MS = Number(process.env.CHECK_TIMEOUT_MS ?? 2_000);
/**
 * The decision while weir fails. This one is fail-open. For fail-closed use
 * { allowed: false, headers: { 'Retry-After': '1' } }.
 */
const DECISION_ON_FAILURE = { allowed: true, headers: {} };

/**
 * @typedef {{ allowed: boolean, headers: Record<string, string> }} Decision with headers for the
 *   response to the client
 * @typedef {{ success: boolean, remaining: number, reset: number }} Quota
 */

/**
 * @param {string} identifier 1 to 512 characters; use a digest of longer ones
 * @returns {Promise<Decision>}
 */
export async function checkLimit(identifier) {
  try {
    const response = await fetch(`${WEIR_URL}/v2/ratelimit.limit`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${WEIR_KEY}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ ...LIMIT, identifier }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (!response.ok) throw new Error(`status ${response.status}: ${await response.text()}`);
    const { data } = /** @type {{ data: Quota }} */ (await response.json());
    return { allowed: data.success, headers: quotaHeaders(data) };
  } catch (error) {
    console.warn('weir has not decided:', error);
    return DECISION_ON_FAILURE;
  }
}

/** @param {Quota} quota */
function quotaHeaders({ success, remaining, reset }) {
  const seconds = Math.max(1, Math.ceil((reset - Date.now()) / 1_000));
  const header = { RateLimit: `"${LIMIT.namespace}";r=${remaining};t=${seconds}` };
  return success ? header : { ...header, 'Retry-After': String(seconds) };
}
