/** The software bill of materials, of small installations. test/long makes the real one. */

import { describe, expect, test } from 'vitest';
import { BUNDLED_PACKAGES, billOfMaterials, type Lock } from '../../../tools/release/sbom.ts';

const TIME_MS = 1_795_500_000_123;
const INTEGRITY = `sha512-${Buffer.from('digest').toString('base64')}`;
const locked = (version: string, more: object = {}) => {
  return { version, license: 'MIT', integrity: INTEGRITY, ...more };
};

const manifest = {
  name: '@scope/product',
  version: '1.2.3',
  description: 'a product',
  license: 'Apache-2.0',
  dependencies: { alias: 'npm:real@1.0.0', parent: '2.0.0' },
  optionalDependencies: { absent: '1.0.0' },
};
const lock: Lock = {
  packages: Object.fromEntries(
    BUNDLED_PACKAGES.map((name) => [`node_modules/${name}`, locked('9.9.9')]),
  ),
};
const installed: Lock = {
  packages: {
    'node_modules/alias': locked('1.0.0', { name: 'real' }),
    'node_modules/parent': locked('2.0.0', { dependencies: { '@in/child': '^1', shared: '^1' } }),
    'node_modules/parent/node_modules/shared': locked('1.5.0', { dependencies: { other: '1' } }),
    'node_modules/shared': locked('1.0.0', { license: 'ISC' }),
    'node_modules/other': locked('1.0.0', { optionalDependencies: { absent: '1' } }),
    'node_modules/@in/child': locked('1.0.0'),
  },
};
const bill = billOfMaterials({ manifest, lock }, installed, TIME_MS);
const purls = bill.components.map(({ purl }) => purl);
const dependenciesOf = (ref: string) => {
  return bill.dependencies.find((each) => each.ref === ref)?.dependsOn;
};

describe('the bill of materials', () => {
  test('describes the product and its time', () => {
    expect(bill).toMatchObject({ bomFormat: 'CycloneDX', specVersion: '1.6' });
    expect(bill.metadata).toEqual({
      timestamp: '2026-11-24T06:00:00Z',
      component: {
        type: 'application',
        'bom-ref': 'pkg:npm/%40scope/product@1.2.3',
        group: '@scope',
        name: 'product',
        version: '1.2.3',
        description: 'a product',
        licenses: [{ license: { id: 'Apache-2.0' } }],
        purl: 'pkg:npm/%40scope/product@1.2.3',
      },
    });
  });

  test('lists what is installed, by real names, and the bundled packages', () => {
    expect(purls.sort()).toEqual([
      'pkg:npm/%40in/child@1.0.0',
      'pkg:npm/other@1.0.0',
      'pkg:npm/parent@2.0.0',
      'pkg:npm/preact@9.9.9',
      'pkg:npm/real@1.0.0',
      'pkg:npm/shared@1.0.0',
      'pkg:npm/shared@1.5.0',
      'pkg:npm/typebox@9.9.9',
      'pkg:npm/yaml@9.9.9',
    ]);
    const bundled = bill.components.filter(({ properties }) => properties !== undefined);
    expect(bundled.map(({ name }) => name)).toEqual(BUNDLED_PACKAGES);
  });

  test('has hashes and licences of the lock file', () => {
    const shared = bill.components.find(({ purl }) => purl === 'pkg:npm/shared@1.0.0');
    expect(shared?.licenses).toEqual([{ license: { id: 'ISC' } }]);
    const content = Buffer.from('digest').toString('hex');
    expect(shared?.hashes).toEqual([{ alg: 'SHA-512', content }]);
  });

  test('resolves dependencies as Node does', () => {
    expect(dependenciesOf('pkg:npm/%40scope/product@1.2.3')).toEqual([
      'node_modules/alias',
      'node_modules/parent',
      'node_modules/preact',
      'node_modules/typebox',
      'node_modules/yaml',
    ]);
    expect(dependenciesOf('node_modules/parent')).toEqual([
      'node_modules/@in/child',
      'node_modules/parent/node_modules/shared',
    ]);
    expect(dependenciesOf('node_modules/parent/node_modules/shared')).toEqual([
      'node_modules/other',
    ]);
    expect(dependenciesOf('node_modules/other')).toEqual([]);
  });

  test('is not made of an incomplete installation', () => {
    const { 'node_modules/other': _, ...packages } = installed.packages;
    const make = () => billOfMaterials({ manifest, lock }, { packages }, TIME_MS);
    expect(make).toThrow(/shared depends on other, which is not installed/);
    const unlicensed = { packages: { ...installed.packages, 'node_modules/x': { version: '1' } } };
    const makeOther = () => billOfMaterials({ manifest, lock }, unlicensed, TIME_MS);
    expect(makeOther).toThrow('node_modules/x has no licence in the lock file');
  });
});
