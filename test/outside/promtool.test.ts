/** Checks the metrics with `promtool` of Prometheus. */

import { spawnSync } from 'node:child_process';
import { afterAll, describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { isMissing } from '../support/gateway-process.ts';
import { LONGEST_WINDOW_MS, readMetrics, sendCheck, sendRequest } from '../support/http.ts';
import { callOperationOk } from '../support/operations.ts';
import { forwardedFor, sendGatewayCheck, writeConfig } from '../support/policy-config.ts';
import {
  DECIDE_MODES,
  freePort,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const NAMES = ['plain', 'a "quoted" name', 'back\\slash', 'two\nlines', '{a="b"} 1', 'é€😀'];

describe.skipIf(isMissing('promtool', '--version'))('promtool check metrics', () => {
  const own = useDataDirectory(['--counters', '1024']);
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));

  test.each(DECIDE_MODES)('finds no problem in /metrics after traffic (%s)', async (mode) => {
    const gatewayPort = await freePort();
    const config = writeConfig(directory, { login: { limit: 1, onError: 'deny' } });
    const gatewayArgs = ['--config', config, '--gateway-port', `${gatewayPort}`];
    const args = ['--counters', '1024', '--acceptors', '2', '--decide', mode, ...gatewayArgs];
    const server = await own.start({ args: [...args, '--checkpoint-ms', '100'] });
    for (const namespace of NAMES) {
      const body = { namespace, identifier: 'a', limit: 1, duration: LONGEST_WINDOW_MS };
      for (const more of [{}, {}, { async: true }])
        await sendCheck(server.port, { ...body, ...more });
    }
    await sendRequest(server.port, { path: '/nowhere' });
    for (let i = 0; i < 2; i++)
      await sendGatewayCheck(gatewayPort, '/v1/check/login', forwardedFor('10.0.0.1'));
    const override = {
      namespaceName: 'plain',
      identifier: 'abc',
      limit: 2,
      duration: LONGEST_WINDOW_MS,
    };
    await callOperationOk(server.port, 'ratelimits.setOverride', override);
    await waitUntil('metrics of checkpoints and of every namespace exist', async () => {
      const names = [...(await readMetrics(server.adminUrl)).keys()].join();
      return names.includes('weir_checkpoint_age_seconds') && names.includes('é€😀');
    });
    const input = await (await fetch(`${server.adminUrl}/metrics`)).text();
    const { status, stdout, stderr, error } = spawnSync('promtool', ['check', 'metrics'], {
      input,
      encoding: 'utf8',
    });
    expect([error, status, stdout + stderr]).toEqual([undefined, 0, '']);
  });

  test('finds a metric name that violates its rules', () => {
    const input = '# HELP weir_counter_slots Slots.\n# TYPE weir_counter_slots gauge\n';
    const text = `${input}weir_counter_slots 1\n`;
    const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: text,
      encoding: 'utf8',
    });
    expect([status, stderr]).toEqual([3, expect.stringContaining('should not include type')]);
  });
});
