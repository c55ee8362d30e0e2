/** The real bill of materials, against the schema of CycloneDX and a real installation. */

import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import type { BillOfMaterials } from '../../tools/release/sbom.ts';
import { pythonEnvironment } from '../support/programs/python-environment.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const TIMEOUT_MS = 120_000;
vi.setConfig({ testTimeout: TIMEOUT_MS });
const VALIDATE = `
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(None if error is None else str(error))
`;

const python = await pythonEnvironment('cyclonedx', [
  'cyclonedx-python-lib[json-validation]==11.12.0',
]);

describe('npm run release -- sbom', () => {
  let text: string;
  let bill: BillOfMaterials;

  const print = () => {
    const env = { ...process.env, SOURCE_DATE_EPOCH: '1795500000' };
    const args = ['run', '--silent', 'release', '--', 'sbom'];
    return execFileSync('npm', args, { cwd: ROOT, env, encoding: 'utf8' });
  };
  beforeAll(() => {
    text = print();
    bill = JSON.parse(text);
  });

  test('prints the same each time', () => {
    expect(print()).toBe(text);
  });

  test.skipIf(python === undefined)('is valid CycloneDX, strictly', () => {
    const args = { input: text, encoding: 'utf8' } as const;
    const { status, stderr } = spawnSync(`${python!.bin}/python3`, ['-c', VALIDATE], args);
    expect([status, stderr]).toEqual([0, '']);
  });

  test('lists every production dependency of package.json, by its real name', () => {
    const { dependencies } = JSON.parse(readFileSync(`${ROOT}/package.json`, 'utf8'));
    const expected = Object.entries<string>(dependencies).map(([name, version]) => {
      const alias = /^npm:(.+)@(.+)$/.exec(version);
      return `pkg:npm/${(alias?.[1] ?? name).replace('@', '%40')}@${alias?.[2] ?? version}`;
    });
    const purls = bill.components.map(({ purl }) => purl);
    expect(expected.filter((purl) => !purls.includes(purl))).toEqual([]);
    expect(purls.filter((purl) => purl.includes('vitest'))).toEqual([]);
    console.log(`${purls.length} components on ${process.platform}-${process.arch}`);
  });

  test('refers only to its own components', () => {
    const refs = bill.components.map((component) => component['bom-ref']);
    expect(new Set(refs).size).toBe(refs.length);
    const used = bill.dependencies.flatMap(({ dependsOn }) => dependsOn);
    expect(used.filter((ref) => !refs.includes(ref))).toEqual([]);
  });
});
