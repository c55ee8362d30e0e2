/** A release starts only if all versions agree, and its notes are those of the changelog. */

import { describe, expect, test } from 'vitest';
import { releaseFaults, releaseNotes } from '../../../tools/release/notes.ts';

const CHANGELOG = `# Changelog

## Unreleased

## 1.2.3 - 2026-11-24

### Added

- A thing.

## 1.2.2 - 2026-10-01

- Another thing.

## 1.2.1 - 2026-09-01

`;
const files = {
  manifest: JSON.stringify({ version: '1.2.3' }),
  lock: JSON.stringify({ packages: { '': { version: '1.2.3' } } }),
  changelog: CHANGELOG,
  chart: 'version: 1.2.3\nappVersion: 1.2.3\n',
};

describe('a release', () => {
  test('is ready if tag, package, lock file, chart and changelog agree', () => {
    expect(releaseFaults('v1.2.3', files)).toEqual([]);
  });

  test.each<[tag: string, changed: Partial<typeof files>, fault: string]>([
    ['v1.2.4', {}, 'the tag must be v1.2.3, the version in package.json; got v1.2.4'],
    ['1.2.3', {}, 'the tag must be v1.2.3, the version in package.json; got 1.2.3'],
    [
      'v1.2.3',
      { lock: files.lock.replace('1.2.3', '1.2.2') },
      'package-lock.json must have version 1.2.3; it has 1.2.2. Run npm install',
    ],
    [
      'v1.2.3',
      { chart: 'version: 1.2.3\nappVersion: 1.2.2\n' },
      'Chart.yaml must have appVersion 1.2.3; it has 1.2.2',
    ],
    [
      'v1.2.3',
      { changelog: '## Unreleased\n\n- A thing.\n' },
      'CHANGELOG.md must have a section "## 1.2.3 - YYYY-MM-DD" with text',
    ],
  ])('with the tag %s and with %j is not ready, and the fault names it', (tag, changed, fault) => {
    expect(releaseFaults(tag, { ...files, ...changed })).toEqual([fault]);
  });
});

describe('release notes', () => {
  test('are the section of the version', () => {
    expect(releaseNotes(CHANGELOG, '1.2.3')).toBe('### Added\n\n- A thing.');
    expect(releaseNotes(CHANGELOG, '1.2.2')).toBe('- Another thing.');
  });

  test('do not exist for an empty section, or for a version without one', () => {
    expect(releaseNotes(CHANGELOG, '1.2.1')).toBeUndefined();
    expect(releaseNotes(CHANGELOG, '1.2')).toBeUndefined();
  });
});
