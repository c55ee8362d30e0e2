/** Lua files are bundled as text: `--moduleTypes .lua:text` of rolldown, a plugin of vitest. */

declare module '*.lua' {
  const text: string;
  export default text;
}
