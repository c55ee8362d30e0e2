/** Checks that a repository is ready for a release, and reads its notes from the changelog. */

import { parse } from 'yaml';

/** The texts of the files that name the version. */
export interface ReleaseFiles {
  /** package.json */
  manifest: string;
  /** package-lock.json */
  lock: string;
  /** CHANGELOG.md */
  changelog: string;
  /** Chart.yaml of the Helm chart. */
  chart?: string;
}

/** A section of a release: `## 0.1.0 - 2026-11-24`. */
const SECTION = /^## (\d+\.\d+\.\d+\S*) - \d{4}-\d\d-\d\d$/;
const ANY_SECTION = /^## /;

/**
 * @param tag `v0.1.0`
 * @returns what is wrong, a sentence each; empty if the repository is ready
 */
export function releaseFaults(tag: string, files: ReleaseFiles): string[] {
  const faults: string[] = [];
  const { version } = JSON.parse(files.manifest);
  if (tag !== `v${version}`) {
    faults.push(`the tag must be v${version}, the version in package.json; got ${tag}`);
  }
  const { packages } = JSON.parse(files.lock);
  if (packages[''].version !== version) {
    const got = packages[''].version;
    faults.push(`package-lock.json must have version ${version}; it has ${got}. Run npm install`);
  }
  if (files.chart !== undefined) {
    const chart = parse(files.chart);
    for (const field of ['version', 'appVersion']) {
      if (chart[field] === version) continue;
      faults.push(`Chart.yaml must have ${field} ${version}; it has ${chart[field]}`);
    }
  }
  if (releaseNotes(files.changelog, version) === undefined) {
    faults.push(`CHANGELOG.md must have a section "## ${version} - YYYY-MM-DD" with text`);
  }
  return faults;
}

/** The text of a version's section, without its heading; undefined if there is none. */
export function releaseNotes(changelog: string, version: string): string | undefined {
  const lines = changelog.split('\n');
  const start = lines.findIndex((line) => SECTION.exec(line)?.[1] === version);
  if (start === -1) return undefined;
  const end = lines.findIndex((line, i) => i > start && ANY_SECTION.test(line));
  const text = lines.slice(start + 1, end === -1 ? undefined : end);
  return text.join('\n').trim() || undefined;
}
