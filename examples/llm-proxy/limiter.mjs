// @ts-check
/**
 * A client of weir for reservations. A reserve is sent once: weir may have counted one without a
 * response. A commit is repeated, because weir applies only the first.
 */

const WEIR_URL = process.env.WEIR_URL ?? 'http://127.0.0.1:7070';
const WEIR_KEY = process.env.WEIR_KEY;
if (!WEIR_KEY) throw new Error('WEIR_KEY is not set');

/** Tokens of each organization in a window. */
const LIMIT = {
  namespace: 'llm',
  limit: Number(process.env.TOKEN_LIMIT ?? 1_000),
  duration: Number(process.env.WINDOW_MS ?? 60_000),
};
const TIMEOUT_MS = 2_000;
/** Times to wait before a commit is sent again. */
const RETRY_DELAYS_MS = [100, 1_000];

/**
 * @typedef {{ success: boolean, reservationId: string | null, limit: number, reset: number }} Reservation
 */

/**
 * @param {string} identifier
 * @param {number} cost the most tokens that the call may use
 * @param {number} ttl the longest time that the call may take, in ms
 * @returns {Promise<Reservation>}
 * @throws if weir does not respond, or rejects the request
 */
export async function reserve(identifier, cost, ttl) {
  const response = await post('reserve', { ...LIMIT, identifier, cost, ttl });
  if (!response.ok) throw new Error(`weir answered ${response.status}: ${await response.text()}`);
  return /** @type {Promise<Reservation>} */ (response.json());
}

/**
 * Returns the tokens that the call has not used. It never rejects: without a commit, the
 * reservation ends after its ttl.
 * @param {Reservation} reservation
 * @param {number} cost tokens that the call has used
 */
export async function commit({ reservationId }, cost) {
  // There was no room for a record: weir has counted the tokens without one.
  if (reservationId === null) return;
  for (const delayMs of [...RETRY_DELAYS_MS, undefined]) {
    try {
      const response = await post('commit', { reservationId, cost });
      const text = await response.text();
      if (!response.ok) console.warn(`weir answered ${response.status}: ${text}`);
      return;
    } catch (error) {
      console.warn('weir has not answered a commit:', error);
      if (delayMs !== undefined) await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
  }
}

/**
 * @param {string} operation
 * @param {object} fields
 */
function post(operation, fields) {
  return fetch(`${WEIR_URL}/v1/ratelimits.${operation}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${WEIR_KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(fields),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
}
