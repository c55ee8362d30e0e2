/**
 * `npm run release`: what a release needs beside the package. Run in the root of the repository.
 * Results go to standard output, faults to standard error. Exit code 1: the repository is not ready
 * for this release. 2: invalid arguments.
 */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { systemMs } from '../../src/shared-memory/clock.ts';
import { installForProduction } from './install.ts';
import { releaseFaults, releaseNotes } from './notes.ts';
import { billOfMaterials } from './sbom.ts';

const USAGE = `Usage:
  npm run release -- notes <tag>  checks that versions agree, and prints the notes of a release
  npm run release -- sbom         prints a software bill of materials, in CycloneDX 1.6;
                                  its time is SOURCE_DATE_EPOCH, in seconds, or now
`;
const CHART = 'deploy/helm/Chart.yaml';

const root = process.cwd();
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

process.exitCode = run(process.argv.slice(2));

function run([command, ...args]: readonly string[]): number {
  if (command === 'notes' && args.length === 1) return printNotes(args[0]);
  if (command === 'sbom' && args.length === 0) return printBill();
  process.stderr.write(USAGE);
  return 2;
}

function printNotes(tag: string): number {
  const files = {
    manifest: read('package.json'),
    lock: read('package-lock.json'),
    changelog: read('CHANGELOG.md'),
    ...(existsSync(join(root, CHART)) ? { chart: read(CHART) } : {}),
  };
  const faults = releaseFaults(tag, files);
  if (faults.length > 0) {
    process.stderr.write(`${faults.join('\n')}\n`);
    return 1;
  }
  process.stdout.write(`${releaseNotes(files.changelog, tag.slice(1))}\n`);
  return 0;
}

function printBill(): number {
  const installed = installForProduction(root);
  const seconds = process.env.SOURCE_DATE_EPOCH;
  const timeMs = seconds === undefined ? systemMs() : Number(seconds) * 1_000;
  const manifest = JSON.parse(read('package.json'));
  const lock = JSON.parse(read('package-lock.json'));
  const bill = billOfMaterials({ manifest, lock }, installed, timeMs);
  process.stdout.write(`${JSON.stringify(bill, null, 2)}\n`);
  return 0;
}
