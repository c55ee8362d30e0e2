// @ts-check
/**
 * Decides whether a language model may answer a prompt, by two limits at once: the requests of a
 * user and the tokens of an organization. If one limit denies, weir counts nothing.
 *
 *   node check-prompt.mjs <organization> <user> <tokens>
 *
 * Exit code: 0 allowed, 1 denied, 2 weir has not decided.
 */

const WEIR_URL = process.env.WEIR_URL ?? 'http://127.0.0.1:7070';
const TIMEOUT_MS = Number(process.env.CHECK_TIMEOUT_MS ?? 2_000);

const [, , organization, user, tokens] = process.argv;
const checks = [
  { namespace: 'requests', identifier: user, limit: 3, duration: 60_000 },
  {
    namespace: 'tokens',
    identifier: organization,
    limit: 10_000,
    duration: 60_000,
    cost: Number(tokens),
  },
];

try {
  const { passed, limits } = await checkAll(checks);
  console.log(passed ? 'allowed' : 'denied');
  for (const { namespace, identifier, remaining, passed: hasPassed } of limits) {
    const result = hasPassed ? `remaining ${remaining}` : 'limit exceeded';
    console.log(`  ${namespace} of ${identifier}: ${result}`);
  }
  process.exitCode = passed ? 0 : 1;
} catch (error) {
  // Fail-closed: each answer of the model costs money.
  console.log('denied: weir has not decided');
  console.error(error);
  process.exitCode = 2;
}

/**
 * @typedef {{ namespace: string, identifier: string, remaining: number, passed: boolean }} Limit
 * @typedef {{ passed: boolean, limits: Limit[] }} BatchDecision
 */

/**
 * Sends the batch once: weir may have counted a batch without a response.
 * @param {object[]} checks 1 to 100
 * @returns {Promise<BatchDecision>}
 * @throws if weir does not respond, or rejects the batch
 */
async function checkAll(checks) {
  const response = await fetch(`${WEIR_URL}/v2/ratelimit.multiLimit`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${process.env.WEIR_KEY}`,
      'Content-Type': 'application/json',
    },
    body: JSON.stringify(checks),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (!response.ok) throw new Error(`status ${response.status}: ${await response.text()}`);
  const { data } = /** @type {{ data: BatchDecision }} */ (await response.json());
  return data;
}
