/** The curl commands that a start prints work as they are printed. */

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { CERTIFICATE_A, tlsEnvironment, writeCertificate } from '../../support/certificates.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { isMissing } from '../../support/programs/program.ts';
import type { ServerProcess } from '../../support/server.ts';

const own = useDataDirectory(['--counters', '1024', '--acceptors', '1']);
const run = async (command: string) => {
  const { stdout } = await promisify(execFile)('sh', ['-c', command]);
  return stdout;
};
const commandOf = (server: ServerProcess) => /^curl .*$/m.exec(server.stdout())?.[0] ?? '';

describe.skipIf(isMissing('curl', '--version'))('a printed command', () => {
  test.each(['127.0.0.1', '0.0.0.0', '::'])('of a first start on %s works', async (host) => {
    const server = await own.start({ args: ['--host', host], env: { WEIR_ROOT_KEY: undefined } });
    const response = JSON.parse(await run(commandOf(server)));
    expect(Object.keys(response)).toEqual(['success', 'limit', 'remaining', 'reset']);
    expect(response).toMatchObject({ success: true, limit: 10, remaining: 9 });
  });

  test('of a first start with TLS works', async () => {
    const directory = join(own.dataDir, '..');
    const env = tlsEnvironment(writeCertificate(directory, CERTIFICATE_A));
    const server = await own.start({ env: { ...env, WEIR_ROOT_KEY: undefined } });
    const response = JSON.parse(await run(commandOf(server)));
    expect(response).toMatchObject({ success: true, limit: 10, remaining: 9 });
  });

  test('for a Unix socket works, also with a quote in its path', async () => {
    const path = join(own.dataDir, "it's here.sock");
    const server = await own.start({ args: ['--counters', '1024', '--socket', path] });
    const [, command] = / by (curl .*localhost)/.exec(server.stdout()) ?? [];
    const route = command.replace('http://localhost', 'http://localhost/nowhere');
    expect(await run(`${route} -s`)).toContain('there is no GET /nowhere');
  });
});
