// Sets the theme before the first paint, so that a dark page does not flash white.
// A classic script in the head: modules run too late for that.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem('millpond.theme');
  } catch (refused) {
    // Storage is switched off: the system's theme is used.
  }
  if (chosen === 'light' || chosen === 'dark') {
    document.documentElement.dataset.theme = chosen;
  }
})();
