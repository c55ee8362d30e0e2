/** The chart of the HTTP load: throughput and CPU per request of each server, as SVG. */

import type { LoadResult } from '../load/http-load.ts';

const WIDTH = 860;
const LABEL_WIDTH = 190;
const BAR_HEIGHT = 20;
const ROW_HEIGHT = 28;
const PANEL_GAP = 44;
const TITLE_HEIGHT = 24;

interface ChartBar {
  label: string;
  value: number;
  text: string;
  color: string;
}

const colorOf = (server: string) => (server.startsWith('weir') ? '#2b6cb0' : '#a0aec0');

export function loadChart(results: readonly LoadResult[], caption: string): string {
  const connections = [...new Set(results.map((result) => result.connections))];
  const panels = connections.flatMap((count) => {
    const rows = results.filter((result) => result.connections === count);
    const plural = count === 1 ? 'connection' : 'connections';
    const bars = (
      value: (row: LoadResult) => number,
      text: (row: LoadResult) => string,
    ): ChartBar[] =>
      rows.map((row) => ({
        label: row.server,
        value: value(row),
        text: text(row),
        color: colorOf(row.server),
      }));
    const rates = bars(
      ({ requestsPerSecond }) => requestsPerSecond,
      ({ requestsPerSecond, throughputRatio: { median, min, max } }) =>
        `${Math.round(requestsPerSecond).toLocaleString('en')}  x ${median.toFixed(2)}` +
        ` (${min.toFixed(2)} - ${max.toFixed(2)})`,
    );
    const cpu = bars(
      ({ cpuPerRequest }) => cpuPerRequest ?? 0,
      ({ cpuPerRequest }) => `${(cpuPerRequest ?? 0).toFixed(1)} us`,
    );
    return [
      { title: `requests a second, ${count} ${plural}`, bars: rates },
      { title: `CPU per request, all threads, ${count} ${plural}`, bars: cpu },
    ];
  });
  let y = 12;
  const parts: string[] = [];
  for (const { title, bars } of panels) {
    parts.push(svgText(0, y + 12, title, 'font-weight="bold"'));
    y += TITLE_HEIGHT;
    // The text to the right of the longest bar needs this space.
    const scale = (WIDTH - LABEL_WIDTH - 230) / Math.max(...bars.map(({ value }) => value));
    for (const { label, value, text, color } of bars) {
      const length = Math.max(1, value * scale).toFixed(1);
      parts.push(
        svgText(LABEL_WIDTH - 8, y + 14, label, 'text-anchor="end"'),
        `<rect x="${LABEL_WIDTH}" y="${y}" width="${length}" height="${BAR_HEIGHT}"` +
          ` fill="${color}"/>`,
        svgText(LABEL_WIDTH + Number(length) + 8, y + 14, text),
      );
      y += ROW_HEIGHT;
    }
    y += PANEL_GAP - ROW_HEIGHT;
  }
  parts.push(svgText(0, y + 4, caption, 'fill="#718096"'));
  const height = y + 16;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 0 ${WIDTH} ${height}"` +
    ` width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="13">\n` +
    '<title>HTTP load: requests a second and CPU per request</title>\n' +
    `<rect x="-10" width="${WIDTH}" height="${height}" fill="#ffffff"/>\n` +
    `${parts.join('\n')}\n</svg>\n`
  );
}

function svgText(x: number, y: number, content: string, attributes = ''): string {
  const escaped = content.replace(/[<>&]/g, (character) => `&#${character.charCodeAt(0)};`);
  return `<text x="${x}" y="${y}" ${attributes}>${escaped}</text>`;
}
