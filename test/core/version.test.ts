import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { VERSION } from '../../src/core/version.ts';
import { UWS_PACKAGE } from '../../src/server/uws.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { readMetrics } from '../support/http.ts';

const own = useDataDirectory(['--counters', '1024', '--acceptors', '1']);

test('the sources and the build have the version of package.json', async () => {
  const manifest = new URL('../../package.json', import.meta.url);
  expect(VERSION).toBe(JSON.parse(readFileSync(manifest, 'utf8')).version);
  const server = await own.start();
  const info = [...(await readMetrics(server.adminUrl))].filter(([name]) => name.includes('_info'));
  const labels = `version="${VERSION}",node="${process.versions.node}",uws="${UWS_PACKAGE}"`;
  expect(info).toEqual([[`weir_build_info{${labels}}`, 1]]);
});
