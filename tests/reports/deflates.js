// Many small deflates at once, then none: malloc keeps what zlib freed (nodejs/help#1942).
const zlib = require('zlib');
const held = [];
function round(n) {
  return new Promise(done => {
    let left = n;
    for (let i = 0; i < n; i++)
      zlib.deflate(Buffer.alloc(2000, i % 256), (e, out) => { if (i % 50 === 0) held.push(out); if (--left === 0) done(); });
  });
}
(async () => {
  for (let r = 0; r < 3; r++) await round(800);
  if (global.gc) { gc(); gc(); }
  await new Promise(r => setTimeout(r, 500));
  if (global.gc) gc();
  console.log('READY');
  setTimeout(() => {}, 600000);
})();
