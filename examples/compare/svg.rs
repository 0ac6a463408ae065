//! The part of SVG that the picture needs, in whole pixels, so that the result does not depend on
//! rounding.

use std::fmt::Write as _;

pub(crate) struct Svg {
    width: u32,
    height: u32,
    body: String,
}

/// Which end of a text its `x` is.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Svg {
    pub(crate) fn new(width: u32, height: u32) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    /// Draws rectangles of one class as one element.
    pub(crate) fn areas(&mut self, class: &str, areas: impl IntoIterator<Item = Area>) {
        let mut path = String::new();
        for Area {
            x,
            y,
            width,
            height,
        } in areas
        {
            // Writing to a string never fails.
            let _ = write!(path, "M{x} {y}h{width}v{height}h-{width}z");
        }
        if !path.is_empty() {
            let _ = writeln!(self.body, r#"<path class="{class}" d="{path}"/>"#);
        }
    }

    pub(crate) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (u32, u32), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" text-anchor="{anchor}" x="{x}" y="{y}">{text}</text>"#
        );
    }

    /// The file, with a title for readers who cannot see it.
    pub(crate) fn finish(self, title: &str, style: &str) -> String {
        let Self {
            width,
            height,
            body,
        } = self;
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>\n{style}</style>\n{body}</svg>\n"
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
