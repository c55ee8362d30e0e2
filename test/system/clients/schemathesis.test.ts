/**
 * Schemathesis reads `/openapi.json` from a running server and sends requests that it generates
 * from the document: its examples, values at the limits of each schema, and random valid and
 * invalid values. Every response must be as documented, no status code may be undocumented or a
 * server error, valid requests must be accepted and invalid ones rejected.
 *
 * `schemathesis_hooks.py` lists the findings that are no faults, with their reasons. One is the
 * HTML with which uWebSockets.js answers broken HTTP (400, 431 and 505) before weir sees it.
 */

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { callOperationOk } from '../../support/operations.ts';
import { writeConfig } from '../../support/policy-config.ts';
import { pythonEnvironment } from '../../support/programs/python-environment.ts';
import {
  cleanEnvironment,
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const environment = await pythonEnvironment('schemathesis', ['schemathesis==4.32.5']);
const HOOKS = new URL('./schemathesis_hooks.py', import.meta.url).pathname;

/**
 * The short form sends the examples, and the values at the limits of the schemas: the same requests
 * each time, however long they take. The long form generates requests for so many seconds.
 */
const SECONDS = { checks: 540, gateways: 60 };
const SHORT_FORM = ['--phases', 'examples,coverage', '--max-examples', '1'];
const SEED = trialCount(1, newSeed());
/** To start, and to finish the operations that the time limit interrupts. */
const MORE_MS = 240_000;

/** The report of a run. */
interface Report {
  operations: { selected: number; tested: number };
  test_cases: { generated: number; with_failures: number };
  failures: unknown[];
  errors: unknown[];
  filtered: number;
}

describe.skipIf(environment === undefined)('Schemathesis', () => {
  const directory = temporaryDirectory();
  const dataDir = temporaryDirectory();
  let server: ServerProcess;
  let gatewayPort = 0;

  beforeAll(async () => {
    gatewayPort = await freePort();
    const policies = writeConfig(directory, {
      login: { limit: 1_000, gateway: ['nginx', 'envoy'], legacyHeaders: true },
    });
    server = await startServer(dataDir, {
      args: [
        ...['--config', policies, '--gateway-port', String(gatewayPort), '--log-level', 'warn'],
        ...['--acceptors', '1', '--workers', '1', '--counters', '65536'],
      ],
    });
    // The examples of the document read and delete these.
    for (const namespaceName of ['mail', 'push', 'sms', 'api']) {
      const override = { namespaceName, identifier: 'vip_*', limit: 100, duration: 60_000 };
      await callOperationOk(server.port, 'ratelimits.setOverride', override);
    }
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    for (const path of [directory, dataDir]) removeDirectory(path);
  });

  /** Runs Schemathesis, which exits with 1 if it has findings. */
  async function run(seconds: number, args: string[]): Promise<{ report: Report; text: string }> {
    const path = join(directory, 'report.json');
    const options = [
      ...(IS_LONG ? ['--max-time', String(seconds)] : SHORT_FORM),
      ...['--seed', String(SEED)],
      ...['--report-json-path', path, '--generation-database', 'none', '--no-color'],
    ];
    const env = {
      ...cleanEnvironment(),
      SCHEMATHESIS_HOOKS: HOOKS,
      PYTHONDONTWRITEBYTECODE: '1',
    };
    const text = await new Promise<string>((resolve) => {
      execFile(
        join(environment?.bin ?? '', 'schemathesis'),
        ['run', `${server.url}/openapi.json`, ...options, ...args],
        { cwd: directory, env: env as NodeJS.ProcessEnv, maxBuffer: 2 ** 26 },
        (_error, stdout, stderr) => resolve(stdout + stderr),
      );
    });
    return { report: JSON.parse(readFileSync(path, 'utf8')), text };
  }

  /** Fails with the findings and the commands that reproduce them. */
  function expectNoFinding({ report, text }: { report: Report; text: string }) {
    const { operations, test_cases, failures, errors } = report;
    const found = { failures, errors, withFailures: test_cases.with_failures };
    expect(found, text).toEqual({ failures: [], errors: [], withFailures: 0 });
    expect(operations.tested).toBe(operations.selected);
    expect(test_cases.generated).toBeGreaterThan(operations.tested);
    expect(server.stderr()).not.toContain('"level":"error"');
    const requests = `${test_cases.generated} requests to ${operations.tested} operations`;
    const measured = `0 findings, ${report.filtered} listed exceptions, seed ${SEED}`;
    recordMeasurement('P10', 'requests generated from the OpenAPI document', requests, measured);
  }

  /** The number of operations in the document. */
  const documented = async () => {
    const response = await fetch(`${server.url}/openapi.json`);
    const { paths } = (await response.json()) as { paths: Record<string, object> };
    return Object.values(paths).flatMap((item) => Object.keys(item)).length;
  };

  test('finds no response on the port for checks that the document does not describe', {
    timeout: SECONDS.checks * 1_000 + MORE_MS,
  }, async () => {
    const headers = [`Authorization: Bearer ${ROOT_KEY}`, `X-Weir-Key: ${ROOT_KEY}`];
    const result = await run(
      SECONDS.checks,
      headers.flatMap((header) => ['--header', header]),
    );
    expectNoFinding(result);
    // It does not test the operation from which it reads the document.
    expect(result.report.operations.selected).toBe((await documented()) - 1);
  });

  test('finds none on the listener for gateways, without a key', {
    timeout: SECONDS.gateways * 1_000 + MORE_MS,
  }, async () => {
    const url = `http://127.0.0.1:${gatewayPort}`;
    const result = await run(SECONDS.gateways, ['--url', url, '--include-tag', 'Gateway checks']);
    expectNoFinding(result);
    expect(result.report.operations.selected).toBe(3);
  });
});
