/** A server with as many overrides as it accepts. */

import { expect, test } from 'vitest';
import { EXACT_OVERRIDES_MAX, WILDCARD_OVERRIDES_MAX } from '../../src/core/constants.ts';
import { errorIn, sendCheck } from '../support/http.ts';
import { callOperation } from '../support/operations.ts';
import { overrideId } from '../support/override-model.ts';
import { removeDirectory, startServer, temporaryDirectory, waitUntil } from '../support/server.ts';
import { addRecords, withStore } from '../support/store.ts';

test('the maximum of overrides is in the error; existing overrides can still be changed', async () => {
  const dataDir = temporaryDirectory();
  const said = { limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1 };
  withStore(dataDir, (store) => {
    addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'full', createdMs: 1 }]);
    const fill = (count: number, identifier: (i: number) => string) => {
      return Array.from({ length: count }, (_, i) => {
        const id = overrideId(i);
        return { id, scope: 'rlns_1', identifier: identifier(i), ...said };
      });
    };
    addRecords(store, 'overrides', [
      ...fill(EXACT_OVERRIDES_MAX - 1, (i) => `user_${i}`),
      ...fill(WILDCARD_OVERRIDES_MAX - 1, (i) => `user_${i}_*`),
    ]);
  });
  const args = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];
  const server = await startServer(dataDir, { args });
  const set = (identifier: string) => {
    const fields = { namespaceName: 'full', identifier, limit: 7, duration: 1_000 };
    return callOperation(server.port, 'ratelimits.setOverride', fields);
  };
  const cases = [
    ['last', 'one more', `${EXACT_OVERRIDES_MAX} overrides without a wildcard`],
    ['last*', 'one more*', `${WILDCARD_OVERRIDES_MAX} overrides with a wildcard`],
  ];
  for (const [last, more, message] of cases) {
    expect((await set(last)).status).toBe(200);
    const response = await set(more);
    expect([response.status, errorIn(response).code]).toEqual([400, 'BAD_REQUEST']);
    expect(errorIn(response).message).toContain(message);
    expect((await set(last)).status).toBe(200);
  }
  for (const [identifier, limit] of [
    ['user_99998', 5],
    ['user_9998_x', 5],
    ['last', 7],
  ] as const) {
    const body = { namespace: 'full', identifier, limit: 9, duration: 1_000 };
    expect(await sendCheck(server.port, body)).toMatchObject({ limit });
  }
  await waitUntil('it says what it loaded', () => server.stderr().includes('"msg":"loaded"'));
  expect(server.stderr()).toContain(
    `"overrides":{"exact":${EXACT_OVERRIDES_MAX - 1},"wildcard":${WILDCARD_OVERRIDES_MAX - 1}}`,
  );
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});
